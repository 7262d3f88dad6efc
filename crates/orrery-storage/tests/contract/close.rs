use orrery_partition::storage::{Health, Role, StorageError};

use crate::LOG;
use crate::support::{value, write};

promise! {
    async fn a_closed_store_takes_no_writes_but_can_be_read(harness) {
        let log = harness.own(LOG).await;
        write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        assert_eq!(harness.store.health(), Health::Writable);
        harness.store.close().await.unwrap();
        assert_eq!(harness.store.health(), Health::Closed);
        let refused = write(log.as_ref(), &[("a", Some("two"))]).await.map(|_| ());
        assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
        let refused = harness.store.open(LOG, Role::Follow).await.map(|_| ());
        assert!(matches!(refused, Err(StorageError::Unavailable(_))), "{refused:?}");
        assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
        assert_eq!(harness.store.close().await, Ok(()), "closing twice is no error");
    }
}

promise! {
    async fn reopening_a_healthy_store_changes_nothing(harness) {
        let log = harness.own(LOG).await;
        write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        assert_eq!(harness.store.reopen().await, Ok(()));
        assert_eq!(harness.store.health(), Health::Writable);
        write(log.as_ref(), &[("a", Some("two"))]).await.unwrap();
    }
}

promise! {
    async fn a_store_knows_about_how_large_it_is(harness) {
        let log = harness.own(LOG).await;
        let before = harness.store.size_bytes();
        write(log.as_ref(), &[("a", Some(&"x".repeat(10_000)))]).await.unwrap();
        assert!(harness.store.size_bytes() >= before + 10_000);
    }
}
