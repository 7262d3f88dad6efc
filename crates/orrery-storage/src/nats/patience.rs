//! Asking again while the servers may just be electing a leader.

use std::time::Duration;

use orrery_partition::storage::{Result, StorageError};
use tokio::time::Instant;

/// Waited after a request that failed, before it is made again.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes a request until it is answered, for as long as `patience` lasts. Only for requests that may be made twice.
pub(super) async fn patiently<T, F>(patience: Duration, request: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + patience;
    loop {
        match request().await {
            Err(StorageError::Unavailable(_)) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            answered => return answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    async fn tries_of(patience: Duration, fails: usize, error: StorageError) -> (Result<()>, usize) {
        let n_tries = AtomicUsize::new(0);
        let answer = patiently(patience, || async {
            match n_tries.fetch_add(1, Ordering::Relaxed) < fails {
                true => Err(error.clone()),
                false => Ok(()),
            }
        })
        .await;
        (answer, n_tries.into_inner())
    }

    #[tokio::test]
    async fn a_request_is_made_again_until_it_is_answered_or_patience_ends() {
        let trouble = StorageError::Unavailable("no leader".into());
        assert_eq!(tries_of(Duration::from_secs(60), 2, trouble.clone()).await, (Ok(()), 3));
        let (answer, n_tries) = tries_of(PAUSE * 2, 1000, trouble.clone()).await;
        assert_eq!(answer, Err(trouble));
        assert!((2..=4).contains(&n_tries), "{n_tries}");
    }

    #[tokio::test]
    async fn what_will_not_get_better_is_not_asked_again() {
        let damage = StorageError::Corrupt("damage".into());
        let (answer, n_tries) = tries_of(Duration::from_secs(60), 1000, damage.clone()).await;
        assert_eq!((answer, n_tries), (Err(damage), 1));
    }
}
