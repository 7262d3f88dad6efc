//! What a region does while an account that must take its changes does not: the changes wait and somebody is told, or the
//! account is failed over.
//!
//! Waiting is the default. New content needs no failover: whoever wrote to the account that is gone writes to another one.
//! Only changes of what that account owns wait for it. Failing over is the deployment's own business, since every cloud does
//! it in its own way, so it comes in through [`FailOver`]. Invariant: when to act is decided by [`next_step`], from times only.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::Cause;
use crate::topology::AccountEntry;

/// After this long somebody should look.
const ALERT_AFTER: Duration = Duration::from_secs(15 * 60);

/// Makes another region take an account's writes.
pub trait FailOver: Debug + Send + Sync + 'static {
    /// Asks for it; repeated until the account takes writes again, so asking twice must do no harm.
    fn fail_over<'a>(&'a self, account: &'a AccountEntry, to: &'a str) -> BoxFuture<'a, Result<(), Cause>>;
}

/// What follows when changes wait for an account.
#[derive(Clone, Debug)]
pub enum OutagePolicy {
    /// They wait for as long as it takes; after this long the outbox says that somebody should look.
    Wait { alert_after: Duration },
    /// After this long the account is failed over to the first of its other regions that can take it.
    FailOver {
        after: Duration,
        through: Arc<dyn FailOver>,
    },
}

impl Default for OutagePolicy {
    fn default() -> OutagePolicy {
        OutagePolicy::Wait {
            alert_after: ALERT_AFTER,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    Alert,
    FailOver,
}

impl OutagePolicy {
    /// What to do about an account whose oldest change has been waiting for so long, and that was failed over so long ago.
    pub fn next_step(&self, waiting: Option<Duration>, failed_over: Option<Duration>) -> Step {
        match (self, waiting) {
            (OutagePolicy::Wait { alert_after }, Some(waiting)) if waiting > *alert_after => Step::Alert,
            (OutagePolicy::FailOver { after, .. }, Some(waiting)) if waiting > *after => {
                // It was done and did not help yet: clients take their time to hear of it.
                let is_young = failed_over.is_some_and(|ago| ago <= (*after).max(ALERT_AFTER / 60));
                if is_young { Step::Alert } else { Step::FailOver }
            }
            _ => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl FailOver for Nobody {
        fn fail_over<'a>(&'a self, _: &'a AccountEntry, _: &'a str) -> BoxFuture<'a, Result<(), Cause>> {
            Box::pin(async { Err("there is nobody to ask".into()) })
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn by_default_changes_wait_a_quarter_of_an_hour_before_anybody_is_told() {
        let policy = OutagePolicy::default();
        for (waiting, step) in [
            (None, Step::Wait),
            (Some(MINUTE), Step::Wait),
            (Some(15 * MINUTE), Step::Wait),
            (Some(16 * MINUTE), Step::Alert),
        ] {
            assert_eq!(policy.next_step(waiting, None), step, "{waiting:?}");
        }
    }

    #[test]
    fn an_account_is_failed_over_once_and_again_only_if_that_did_not_help() {
        let policy = OutagePolicy::FailOver {
            after: MINUTE,
            through: Arc::new(Nobody),
        };
        assert_eq!(policy.next_step(Some(MINUTE), None), Step::Wait);
        assert_eq!(policy.next_step(Some(2 * MINUTE), None), Step::FailOver);
        assert_eq!(policy.next_step(Some(2 * MINUTE), Some(MINUTE / 2)), Step::Alert);
        assert_eq!(policy.next_step(Some(9 * MINUTE), Some(2 * MINUTE)), Step::FailOver);
        assert_eq!(
            policy.next_step(None, Some(9 * MINUTE)),
            Step::Wait,
            "nothing waits any more"
        );
    }
}
