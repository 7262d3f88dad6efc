use orrery_model::{Lsn, Position};
use orrery_partition::storage::StorageError;

use crate::support::{content, stage, transaction, write};
use crate::{LOG, OTHER};

promise! {
    async fn a_dropped_log_is_gone(harness) {
        let (log, other) = (harness.own(LOG).await, harness.own(OTHER).await);
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        write(other.as_ref(), &[("a", Some("kept"))]).await.unwrap();
        let before = content(log.snapshot().unwrap().as_ref());
        let snapshot = log.snapshot().unwrap();
        harness.store.drop_log(LOG).await.unwrap();

        assert_eq!(harness.store.list().unwrap().iter().map(|info| info.log).collect::<Vec<_>>(), [OTHER]);
        let staged = stage(log.as_ref(), vec![transaction(position, &[("a", Some("late"))])]);
        let fenced = Err(StorageError::Fenced { actual: Position::default() });
        assert_eq!(log.append(position, staged).await, fenced);
        assert_eq!(log.barrier().await, fenced);
        assert_eq!(content(snapshot.as_ref()), before, "a snapshot outlives its log");
        assert_eq!(other.head().lsn, Lsn(1));
    }
}

promise! {
    async fn a_log_made_under_a_dropped_id_begins_empty(harness) {
        let log = harness.own(LOG).await;
        for _ in 0..3 {
            write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        }
        harness.checkpoint().await;
        harness.store.drop_log(LOG).await.unwrap();
        let anew = harness.own(LOG).await;
        assert_eq!(anew.head(), Position::default());
        assert!(content(anew.snapshot().unwrap().as_ref()).is_empty());
        write(anew.as_ref(), &[("b", Some("new"))]).await.unwrap();
        assert_eq!(anew.read_log(Lsn::ZERO, usize::MAX).await.unwrap().len(), 1);
    }
}

promise! {
    async fn dropping_what_does_not_exist_is_no_error(harness) {
        assert_eq!(harness.store.drop_log(LOG).await, Ok(()));
    }
}
