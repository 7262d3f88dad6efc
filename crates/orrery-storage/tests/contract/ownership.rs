use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, Lsn, Position, Timestamp};
use orrery_partition::storage::{LogInfo, Role, StorageError};

use crate::support::{stage, transaction, write};
use crate::{LOG, OTHER};

promise! {
    async fn a_higher_epoch_fences_the_earlier_owner(harness) {
        let before = harness.own(LOG).await;
        let position = write(before.as_ref(), &[("a", Some("one"))]).await.unwrap();
        let after = harness.store.open(LOG, Role::Own { epoch: Epoch(2) }).await.unwrap();
        let fenced = Err(StorageError::Fenced { actual: position });
        assert_eq!(before.barrier().await, fenced);
        let staged = stage(before.as_ref(), vec![transaction(position, &[("a", Some("late"))])]);
        assert_eq!(before.append(position, staged).await, fenced);
        assert_eq!(after.barrier().await, Ok(()));
        write(after.as_ref(), &[("a", Some("two"))]).await.unwrap();
    }
}

promise! {
    async fn an_equal_epoch_is_the_same_owner_coming_back(harness) {
        let first = harness.own(LOG).await;
        let again = harness.own(LOG).await;
        write(first.as_ref(), &[("a", Some("one"))]).await.unwrap();
        write(again.as_ref(), &[("a", Some("two"))]).await.unwrap();
        assert_eq!(first.head(), again.head());
        assert_eq!(first.barrier().await, Ok(()));
    }
}

promise! {
    async fn a_lower_epoch_cannot_own(harness) {
        let owner = harness.store.open(LOG, Role::Own { epoch: Epoch(5) }).await.unwrap();
        let position = write(owner.as_ref(), &[("a", Some("one"))]).await.unwrap();
        let refused = harness.store.open(LOG, Role::Own { epoch: Epoch(4) }).await.map(|_| ());
        assert_eq!(refused, Err(StorageError::Fenced { actual: position }));
        assert_eq!(owner.barrier().await, Ok(()));
    }
}

promise! {
    async fn a_follower_appends_what_another_epoch_decided(harness) {
        let follower = harness.store.open(LOG, Role::Follow).await.unwrap();
        let decided = transaction(Position::default(), &[("a", Some("one"))]);
        follower.append(Position::default(), stage(follower.as_ref(), vec![decided.clone()])).await.unwrap();
        let start = Lsn(1).next_epoch_start();
        let operations = vec![Operation::EpochStarted { previous: Lsn(1) }];
        let epoch = Transaction::at_lsn(decided.position(), Epoch(3), start, Timestamp(2), operations);
        follower.append(decided.position(), stage(follower.as_ref(), vec![epoch.clone()])).await.unwrap();
        assert_eq!(follower.head(), epoch.position());
        assert_eq!(follower.read_log(Lsn(1), usize::MAX).await.unwrap(), std::slice::from_ref(&epoch));
        let refused = harness.store.open(LOG, Role::Own { epoch: Epoch(2) }).await.map(|_| ());
        assert_eq!(refused, Err(StorageError::Fenced { actual: epoch.position() }), "a later epoch has written");
    }
}

promise! {
    async fn a_new_owner_fences_a_follower(harness) {
        let follower = harness.store.open(LOG, Role::Follow).await.unwrap();
        let owner = harness.own(LOG).await;
        let staged = stage(follower.as_ref(), vec![transaction(Position::default(), &[("a", Some("late"))])]);
        let refused = follower.append(Position::default(), staged).await;
        assert_eq!(refused, Err(StorageError::Fenced { actual: Position::default() }));
        assert_eq!(owner.head(), Position::default());
    }
}

promise! {
    async fn the_list_names_every_log_with_its_position_and_highest_owner(harness) {
        let log = harness.store.open(LOG, Role::Own { epoch: Epoch(4) }).await.unwrap();
        harness.store.open(OTHER, Role::Follow).await.unwrap();
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        let expected = [
            LogInfo { log: LOG, position, owner: Epoch(4) },
            LogInfo { log: OTHER, position: Position::default(), owner: Epoch(0) },
        ];
        assert_eq!(harness.store.list().unwrap(), expected);
    }
}
