//! Articles: published here, read from the account that owns them, changed where they are owned.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::lists::{List, ListPage, PageRequest};
use super::outbox::Intent;
use super::{CHANGE_ATTEMPTS, ContentPublishDatabase, contended, give_way, insist};
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::entity::{Article, Draft, check_article_id};
use crate::error::{CallError, CallKind, PublishError};
use crate::filter::Filter;
use crate::{clock, ids};

/// All but the body.
const LISTED: &str =
    "c.id, c.HomeAccount, c.CreatedAt, c.Author, c.Category, c.Tags, c.Title, c.State, c.Revision, c.ChangedAt";
/// How long publishing looks for an earlier attempt in other accounts.
const ELSEWHERE_DEADLINE: Duration = Duration::from_millis(500);
/// The condition that every version meets, as `If-Match` has it.
const ANY_VERSION: &str = "*";

/// A published article.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub article: Article,
    /// Not there before: the first attempt of this name.
    pub is_new: bool,
}

/// What became of a change of something that another account may own.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<T> {
    Now(T),
    /// The owner cannot be reached; the change waits here.
    Queued,
}

impl ContentPublishDatabase {
    /// Publishes an article: one write to the own account. With an `attempt`, a name the caller gives to this article,
    /// calling again is the same article, also in another region if that region has heard of the first attempt by then;
    /// without, calling again is another one.
    pub async fn publish_article(
        &self,
        author: &str,
        draft: Draft,
        attempt: Option<&str>,
    ) -> Result<Published, PublishError> {
        let (account, now) = (self.local(), clock::own_ms());
        let id = match attempt {
            Some(name) => ids::named_article_id(account.tag(), author, name),
            None => ids::article_id(account.tag(), now, clock::chance()),
        };
        let mut article = Article::new(id, account.tag(), author, draft, now)?;
        if attempt.is_some() {
            article = article.with_first_text();
        }
        if let Some(name) = attempt
            && let Some(stored) = self.attempted_elsewhere(author, name).await
        {
            return same_attempt(stored, &article);
        }
        match insist(|| account.create(&article)).await {
            Ok(seen) => {
                article.etag = seen.etag;
                Ok(Published { article, is_new: true })
            }
            Err(error) if error.kind == CallKind::Exists => {
                let stored = account.read::<Article>(&article.id, &article.id, ReadAt::WriteRegion);
                same_attempt(stored.await.map(with_etag)?, &article)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The article that an attempt of this name has made in another account: its author was in another region then, and did
    /// not hear of its success. Looked for nearby and not for long, since publishing must not wait for others; the earliest
    /// one if there are several.
    async fn attempted_elsewhere(&self, author: &str, name: &str) -> Option<Article> {
        let others = self
            .accounts
            .iter()
            .filter(|account| account.tag() != self.local().tag() && !account.is_resting());
        let reads = others.map(|account| async move {
            let id = ids::named_article_id(account.tag(), author, name);
            let read = account.read::<Article>(&id, &id, ReadAt::Near);
            let found = tokio::time::timeout(ELSEWHERE_DEADLINE, read).await;
            found.ok()?.ok().map(with_etag)
        });
        let found = futures::future::join_all(reads).await;
        found.into_iter().flatten().min_by_key(|article| article.created_at)
    }

    /// An article, from the account that owns it or, if its id does not say which, from whichever has it. `token` is the
    /// session token of a notification: a region that lacks the article then says so instead of `not found`.
    pub async fn read_article(&self, id: &str, token: Option<&str>) -> Result<Article, PublishError> {
        check_article_id(id)?;
        let owner = ids::account_tag(id).and_then(|tag| self.account(tag));
        let mut silent = Vec::new();
        if let Some(owner) = owner {
            match read_owned(owner, id, token).await {
                Ok(article) => return Ok(article),
                Err(error) if error.kind == CallKind::NotFound => {}
                Err(_) => silent.push(owner.tag().to_owned()),
            }
        }
        let others = self
            .accounts
            .iter()
            .filter(|account| owner.is_none_or(|owner| owner.tag() != account.tag()));
        let mut reads: FuturesUnordered<_> = others
            .map(|account| async move { (account.tag(), read_owned(account, id, None).await) })
            .collect();
        while let Some((tag, result)) = reads.next().await {
            match result {
                Ok(article) => return Ok(article),
                Err(error) if error.kind == CallKind::NotFound => {}
                Err(_) => silent.push(tag.to_owned()),
            }
        }
        if silent.is_empty() {
            return Err(PublishError::NotFound);
        }
        silent.sort();
        Err(PublishError::Unknown(silent))
    }

    /// Articles of an author, a category or a tag over all accounts, newest first, without their bodies. They are not kept
    /// together by any of these, so every partition is asked.
    pub async fn list_articles(
        &self,
        filter: &Filter,
        request: &PageRequest,
    ) -> Result<ListPage<Article>, PublishError> {
        let condition = match filter {
            Filter::Author(_) => "c.State = 'published' AND c.Author = @name",
            Filter::Category(_) => "c.State = 'published' AND c.Category = @name",
            Filter::Tag(_) => "c.State = 'published' AND ARRAY_CONTAINS(c.Tags, @name)",
        };
        let list = List {
            kind: "articles",
            subject: &filter.to_string(),
            scope: Scope::Everything,
            members: LISTED,
            condition,
            parameters: vec![("@name", filter.name().into())],
        };
        self.read_list(&list, request, |_| false).await
    }

    /// Changes the text of an article whose version the author has seen; `*` is whichever is there.
    pub async fn update_article(
        &self,
        editor: &str,
        id: &str,
        draft: Draft,
        etag: &str,
    ) -> Result<Applied<Article>, PublishError> {
        let intent = Intent::Update {
            article: id.to_owned(),
            editor: editor.to_owned(),
            // Before it may have to wait: what cannot be stored is not kept either.
            draft: draft.checked()?,
            etag: etag.to_owned(),
        };
        self.change_article(id, intent).await
    }

    /// Takes an article back: its text goes, its id stays, and its notifications are withdrawn.
    pub async fn retract_article(
        &self,
        editor: &str,
        id: &str,
        etag: Option<&str>,
    ) -> Result<Applied<Article>, PublishError> {
        let intent = Intent::Retract {
            article: id.to_owned(),
            editor: editor.to_owned(),
            etag: etag.map(str::to_owned),
        };
        self.change_article(id, intent).await
    }

    async fn change_article(&self, id: &str, intent: Intent) -> Result<Applied<Article>, PublishError> {
        check_article_id(id)?;
        let owner = match ids::account_tag(id).and_then(|tag| self.account(tag)) {
            Some(owner) => owner,
            // An id of another maker: whoever has it says whose it is.
            None => {
                let found = self.read_article(id, None).await?;
                self.account(&found.home_account).ok_or(PublishError::NotFound)?
            }
        };
        match apply_change(owner, &intent).await {
            Ok(article) => Ok(Applied::Now(article)),
            Err(PublishError::Unavailable(error)) => {
                tracing::warn!(account = owner.tag(), %error, "a change waits for the account that owns the article");
                self.enqueue(owner.tag(), intent).await?;
                Ok(Applied::Queued)
            }
            Err(error) => Err(error),
        }
    }
}

/// What an attempt of the same name has made before, if it had the same text then. Later changes by the author do not make it
/// another article.
fn same_attempt(stored: Article, wanted: &Article) -> Result<Published, PublishError> {
    let there = Article {
        id: stored.id.clone(),
        home_account: stored.home_account.clone(),
        ..wanted.clone()
    };
    let is_ours = match &stored.first_text {
        Some(first) => stored.author == wanted.author && wanted.first_text.as_ref() == Some(first),
        None => stored.is_same(&there),
    };
    let published = Published {
        article: stored,
        is_new: false,
    };
    is_ours.then_some(published).ok_or(PublishError::Exists)
}

/// Reads what an account owns: nearby, and if it is not there, where it was written.
async fn read_owned(account: &AccountClient, id: &str, token: Option<&str>) -> Result<Article, CallError> {
    let Some(token) = token else {
        return match account.read(id, id, ReadAt::Near).await {
            Err(error) if matches!(error.kind, CallKind::NotFound | CallKind::Behind) => {
                account.read(id, id, ReadAt::WriteRegion).await.map(with_etag)
            }
            read => read.map(with_etag),
        };
    };
    if let Ok(seen) = account.read(id, id, ReadAt::NotBefore(token)).await {
        return Ok(with_etag(seen));
    }
    // A token of a container that was made anew, or one from a stranger, must not make an article unreadable.
    match account.read(id, id, ReadAt::WriteRegion).await {
        Err(unknown) if unknown.kind != CallKind::NotFound => {
            let near = account.read(id, id, ReadAt::Near).await;
            near.map(with_etag).map_err(|_| unknown)
        }
        read => read.map(with_etag),
    }
}

fn with_etag(seen: Seen<Article>) -> Article {
    Article {
        etag: seen.etag,
        ..seen.value
    }
}

/// Applies a change of an article in the account that owns it.
pub(super) async fn apply_change(owner: &AccountClient, intent: &Intent) -> Result<Article, PublishError> {
    for n_tried in 1..=CHANGE_ATTEMPTS {
        let (id, editor, condition) = match intent {
            Intent::Update {
                article, editor, etag, ..
            } => (article, editor, Some(etag)),
            Intent::Retract { article, editor, etag } => (article, editor, etag.as_ref()),
            other => unreachable!("only articles are changed here: {other:?}"),
        };
        let condition = condition.filter(|etag| *etag != ANY_VERSION);
        // Its own region may be behind, and a version that is not the latest cannot be changed.
        let current = owner
            .read::<Article>(id, id, ReadAt::WriteRegion)
            .await
            .map(with_etag)?;
        if current.author != *editor {
            return Err(PublishError::Forbidden);
        }
        let next = match intent {
            Intent::Retract { .. } if current.is_retracted() => return Ok(current),
            Intent::Retract { .. } => current.retracted(clock::now_ms()),
            _ if current.is_retracted() => return Err(PublishError::Retracted),
            Intent::Update { draft, .. } => current.edited(draft.clone(), clock::now_ms())?,
            _ => unreachable!("see above"),
        };
        let known = current.etag.clone().unwrap_or_default();
        if condition.is_some_and(|etag| *etag != known) {
            // The same change, tried again after its answer was lost, has succeeded.
            let is_ours = matches!(intent, Intent::Update { .. }) && is_text_of(&current, &next);
            return if is_ours {
                Ok(current)
            } else {
                Err(PublishError::Changed)
            };
        }
        match owner.replace(&next, &known).await {
            Ok(seen) => {
                return Ok(Article {
                    etag: seen.etag,
                    ..next
                });
            }
            Err(error) if error.kind == CallKind::Changed => give_way(n_tried).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(contended(owner).into())
}

fn is_text_of(current: &Article, next: &Article) -> bool {
    current.revision > 1 && current.is_same(next)
}
