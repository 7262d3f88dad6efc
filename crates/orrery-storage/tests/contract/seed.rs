use orrery_model::{Lsn, Position};
use orrery_partition::storage::{LogInfo, Role, StorageError};

use crate::support::{bytes, content, transaction, value, write};
use crate::{LOG, OTHER};

/// Somewhere a log may stand.
fn somewhere() -> Position {
    let far = Position {
        lsn: Lsn(40),
        ..Position::default()
    };
    transaction(far, &[("elsewhere", None)]).position()
}

promise! {
    async fn a_finished_seed_is_a_log_that_goes_on_from_its_position(harness) {
        let mut seed = harness.store.seed(LOG).await.unwrap();
        let entry = |key: &str, value: Option<&str>| (bytes(key), value.map(bytes));
        seed.write(vec![entry("k/a", Some("first")), entry("k/b", Some("gone"))]).await.unwrap();
        seed.write(vec![entry("k/a", Some("later")), entry("k/b", None), entry("n/a", Some("7"))]).await.unwrap();
        seed.finish(somewhere()).await.unwrap();

        let expected = LogInfo { log: LOG, position: somewhere(), owner: Default::default() };
        assert_eq!(harness.store.list().unwrap(), [expected]);
        let log = harness.own(LOG).await;
        assert_eq!((log.head(), log.snapshot().unwrap().position()), (somewhere(), somewhere()));
        let seeded = [(bytes("k/a"), bytes("later")), (bytes("n/a"), bytes("7"))];
        assert_eq!(content(log.snapshot().unwrap().as_ref()), seeded.into());
        assert_eq!(log.read_log(Lsn::ZERO, 1).await, Err(StorageError::Trimmed { start: somewhere().lsn }));
        let position = write(log.as_ref(), &[("a", Some("own"))]).await.unwrap();
        assert_eq!(position.lsn, somewhere().lsn.next());
        assert_eq!(log.read_log(somewhere().lsn, usize::MAX).await.unwrap().len(), 1);
    }
}

promise! {
    async fn an_unfinished_seed_is_no_log_and_leaves_nothing(harness) {
        let mut seed = harness.store.seed(LOG).await.unwrap();
        seed.write(vec![(bytes("k/a"), Some(bytes("half")))]).await.unwrap();
        assert_eq!(harness.store.list().unwrap(), []);
        drop(seed);
        let log = harness.own(LOG).await;
        assert_eq!(log.head(), Position::default());
        assert!(content(log.snapshot().unwrap().as_ref()).is_empty());
    }
}

promise! {
    async fn a_log_that_exists_cannot_be_seeded(harness) {
        let log = harness.own(LOG).await;
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        let refused = harness.store.seed(LOG).await.map(|_| ());
        assert_eq!(refused, Err(StorageError::Fenced { actual: position }));
        assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
    }
}

promise! {
    async fn a_log_that_is_being_seeded_belongs_to_the_seed(harness) {
        let seed = harness.store.seed(LOG).await.unwrap();
        let second = harness.store.seed(LOG).await.map(|_| ());
        assert!(matches!(second, Err(StorageError::Unavailable(_))), "{second:?}");
        let opened = harness.store.open(LOG, Role::Follow).await.map(|_| ());
        assert!(matches!(opened, Err(StorageError::Unavailable(_))), "{opened:?}");
        harness.own(OTHER).await;
        seed.finish(somewhere()).await.unwrap();
        assert_eq!(harness.own(LOG).await.head(), somewhere());
    }
}
