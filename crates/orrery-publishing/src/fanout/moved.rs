//! After a role has moved to another region: what the region before may have done in vain is done again.
//!
//! A planned change loses nothing. A forced one cuts off what the lost region had not replicated, and every partition is cut
//! where it stood: a notification may be gone although what remembers it as written is not. So the first thing a role does
//! where it did not run before is to look again at everything published since the last heartbeat that has arrived, and some
//! time before. Ids make what did survive come once. The price is that somebody who subscribed within that time may be told
//! of an article that is a little older. Invariant: the task is written down before the first heartbeat of the new place and
//! removed when it is finished, so that it survives a crash.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::serve::{ServeError, Server};
use crate::account::{Scope, Seen};
use crate::database::{ContentPublishDatabase, Heartbeat};
use crate::entity::{Article, Entity as _, Ordered as _, sort_key};
use crate::error::{CallError, CallKind};
use crate::topology::normal_region;

/// The document that says from when on to look again.
const TASK: &str = "fanout-look-again";
/// Partitions do not lag alike: how much earlier than the last heartbeat one may end.
const MARGIN: Duration = Duration::from_secs(120);
/// Articles read at a time.
const PAGE: usize = 100;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LookAgain {
    pub since_ms: u64,
}

/// From when on a role that starts in a region has to look again, from what is written in its account: a task that was not
/// finished, or another region's heartbeat.
fn look_again(task: Option<LookAgain>, beat: Option<&Heartbeat>, here: &str) -> Option<LookAgain> {
    let moved = |beat: &&Heartbeat| {
        let there = beat.region.as_deref();
        there.is_some_and(|there| normal_region(there) != normal_region(here))
    };
    task.or_else(|| {
        beat.filter(moved).map(|beat| LookAgain {
            since_ms: beat.at.saturating_sub(MARGIN.as_millis() as u64),
        })
    })
}

/// Finds out whether there is something to look at again, and writes that down.
pub(super) async fn note_move(database: &ContentPublishDatabase) -> Result<Option<LookAgain>, CallError> {
    let task = match database.local().read_coordination::<LookAgain>(TASK).await {
        Ok(seen) => Some(seen.value),
        Err(error) if error.kind == CallKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let is_noted = task.is_some();
    let task = look_again(task, database.last_beat().await?.as_ref(), database.region());
    if let Some(LookAgain { since_ms }) = &task
        && !is_noted
    {
        let document = json!({"id": TASK, "since_ms": since_ms});
        database.local().put_coordination(TASK, &document).await?;
    }
    Ok(task)
}

/// Serves everything that was published or retracted since then once more. Repeated until it is through.
pub(super) async fn serve_again(
    servers: &[Server],
    task: &LookAgain,
    stopping: &CancellationToken,
) -> Result<(), ServeError> {
    for server in servers {
        for condition in [
            "c.SortKey < @end",
            "c.State = 'retracted' AND c.ChangedAt >= @since AND c.SortKey >= @end",
        ] {
            serve_matching(server, condition, task, stopping).await?;
        }
    }
    if let Some(server) = servers.first() {
        server.local().remove_coordination(TASK).await?;
    }
    Ok(())
}

async fn serve_matching(
    server: &Server,
    condition: &str,
    task: &LookAgain,
    stopping: &CancellationToken,
) -> Result<(), ServeError> {
    let text = format!(
        "SELECT TOP {PAGE} * FROM c WHERE c.Type = @type AND c.SortKey > @after AND {condition} ORDER BY c.SortKey"
    );
    let source = &server.database.accounts()[server.source];
    let mut after = String::new();
    loop {
        let parameters = [
            ("@type", Article::TYPE.into()),
            ("@after", after.as_str().into()),
            // Keys ascend from new to old.
            ("@end", sort_key(task.since_ms, "").into()),
            ("@since", task.since_ms.into()),
        ];
        let page: Seen<Vec<Article>> = source.query(&text, &parameters, Scope::Everything).await?;
        for article in &page.value {
            server.serve_again(article, stopping).await?;
        }
        match page.value.last() {
            Some(last) if page.value.len() >= PAGE => after = last.sort_key(),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(region: Option<&str>) -> Heartbeat {
        Heartbeat {
            at: 500_000,
            region: region.map(str::to_owned),
            next_ms: 2000,
        }
    }

    #[test]
    fn only_a_role_that_ran_elsewhere_before_looks_again_and_an_unfinished_look_is_finished() {
        let since = |since_ms| Some(LookAgain { since_ms });
        for (task, heard, expected) in [
            (None, None, None),
            (None, Some(beat(None)), None),
            (None, Some(beat(Some("westus"))), None),
            (None, Some(beat(Some("North Europe"))), since(380_000)),
            (since(7), Some(beat(Some("West US"))), since(7)),
            (since(7), Some(beat(Some("North Europe"))), since(7)),
        ] {
            let told = format!("{task:?} {heard:?}");
            assert_eq!(look_again(task, heard.as_ref(), "West US"), expected, "{told}");
        }
    }
}
