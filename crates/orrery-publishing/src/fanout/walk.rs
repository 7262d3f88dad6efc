//! Going through the subscribers of one article: pages are read ahead of the writes, a bounded number of writes is under way, and
//! the progress is saved every so often while they go on.
//!
//! Invariants: progress is saved only after everything before it is durable, for writes are waited for in the order in which
//! they were begun; memory is one page per key of the audience and the writes under way.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::audience::{Audience, Member, Source, Step, WantedUsers};
use super::decide::{Phase, Progress, Work};
use super::serve::{ServeError, Server};
use crate::account::{Scope, Seen};
use crate::entity::{Article, Entity as _, Subscription};
use crate::error::CallError;

/// Keys of an audience that are read at the same time.
const READS_IN_FLIGHT: usize = 8;

/// A subscriber who is being served, and the task that does it: a task of its own, so that all cores take part and the next
/// page can be read meanwhile.
struct Begun {
    user: String,
    task: AbortOnDropHandle<Result<(), CallError>>,
}

impl Server {
    /// Serves everybody whom the work names, and remembers how far it got. `serve` may be done twice for one user.
    pub(super) async fn go_through<F>(
        &self,
        article: &Article,
        work: Work,
        (begun, done): (Phase, Phase),
        stopping: &CancellationToken,
        serve: impl Fn(Member) -> F,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<(), CallError>> + Send + 'static,
    {
        let mut progress = Progress {
            article_id: article.id.clone(),
            phase: begun,
            after_user: work.after_user,
            filters: work.filters,
            n_users: work.n_users,
        };
        let sources = self.sources(&progress).await?;
        let mut counts = vec![0; sources.len()];
        let audience = Audience::new(sources.clone(), progress.after_user.as_deref());
        if let Err(error) = self.walk(audience, &mut counts, &mut progress, stopping, serve).await {
            // It comes again; whoever has been served by then need not. One that stops has just saved.
            if !matches!(error, ServeError::Stopping)
                && let Err(unsaved) = self.save_here(&progress).await
            {
                tracing::debug!(article = %article.id, %unsaved, "what was served is not remembered");
            }
            return Err(error);
        }
        progress.phase = done;
        progress.after_user = None;
        self.save_here(&progress).await?;
        self.spread_large(&sources, &counts).await
    }

    /// Serves one after the other; `progress` always says up to whom everybody is.
    async fn walk<F>(
        &self,
        mut audience: Audience,
        counts: &mut [u64],
        progress: &mut Progress,
        stopping: &CancellationToken,
        serve: impl Fn(Member) -> F,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = Result<(), CallError>> + Send + 'static,
    {
        let mut under_way = VecDeque::new();
        let (mut n_unsaved, mut is_read) = (0, false);
        loop {
            while !is_read && under_way.len() < self.limits.in_flight {
                match self.next_member(&mut audience, counts, progress.phase).await? {
                    Some(member) => under_way.push_back(self.begin(member, &serve).await),
                    None => is_read = true,
                }
            }
            let Some(Begun { user, task }) = under_way.pop_front() else {
                return Ok(());
            };
            task.await.map_err(|_| ServeError::Stopping)??;
            progress.n_users += 1;
            progress.after_user = Some(user);
            n_unsaved += 1;
            if n_unsaved >= self.limits.save_every {
                n_unsaved = 0;
                self.save_here(progress).await?;
                if stopping.is_cancelled() {
                    return Err(ServeError::Stopping);
                }
            }
        }
    }

    /// Remembers the progress, if what was read here is complete.
    async fn save_here(&self, progress: &Progress) -> Result<(), ServeError> {
        self.check_place().await?;
        self.save(progress).await
    }

    async fn begin<F>(&self, member: Member, serve: impl Fn(Member) -> F) -> Begun
    where
        F: Future<Output = Result<(), CallError>> + Send + 'static,
    {
        let permit = Arc::clone(&self.writes).acquire_owned().await;
        let user = member.user.clone();
        let serve = serve(member);
        let task = tokio::spawn(async move {
            let _permit = permit;
            serve.await
        });
        Begun {
            user,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// The keys under which subscribers of the filters lie.
    async fn sources(&self, progress: &Progress) -> Result<Vec<Source>, ServeError> {
        let layouts = progress
            .filters
            .iter()
            .map(|filter| crate::database::read_layout(self.local(), filter));
        let layouts = try_join_all(layouts).await?;
        let keys = progress.filters.iter().zip(layouts).flat_map(|(filter, buckets)| {
            let keys = filter.partition_keys(buckets).into_iter();
            keys.map(|partition_key| Source {
                filter: filter.clone(),
                partition_key,
            })
        });
        Ok(keys.collect())
    }

    /// The next member, or nothing when there are no more.
    async fn next_member(
        &self,
        audience: &mut Audience,
        counts: &mut [u64],
        phase: Phase,
    ) -> Result<Option<Member>, ServeError> {
        loop {
            let wanted = match audience.step() {
                Step::End => return Ok(None),
                Step::Member(member) => return Ok(Some(member)),
                Step::Read(wanted) => wanted,
            };
            let reads = wanted.into_iter().map(|wanted| self.read_users(wanted, phase));
            let mut reads = futures::stream::iter(reads).buffer_unordered(READS_IN_FLIGHT);
            while let Some((lane, users)) = reads.try_next().await? {
                counts[lane] += users.len() as u64;
                let has_more = users.len() >= self.limits.page;
                audience.supply(lane, users, has_more);
            }
        }
    }

    async fn read_users(&self, wanted: WantedUsers, phase: Phase) -> Result<(usize, Vec<String>), CallError> {
        // Whoever has cancelled since may still have a notification to withdraw.
        let state = if phase == Phase::Notifying {
            " AND c.State = 'active'"
        } else {
            ""
        };
        let after = if wanted.after.is_some() {
            " AND c.UserId > @after"
        } else {
            ""
        };
        let text = format!(
            "SELECT TOP {} VALUE c.UserId FROM c WHERE c.PartitionKey = @key AND c.Type = @type{state}{after} \
             ORDER BY c.UserId",
            self.limits.page
        );
        let key = wanted.partition_key.as_str();
        let mut parameters = vec![("@key", Value::from(key)), ("@type", Subscription::TYPE.into())];
        parameters.extend(wanted.after.as_deref().map(|after| ("@after", after.into())));
        let users: Seen<Vec<String>> = self.local().query(&text, &parameters, Scope::Key(key)).await?;
        Ok((wanted.lane, users.value))
    }
}
