use std::task::{Context, Waker};

use orrery_model::{LogId, Lsn, Position};
use orrery_partition::storage::StorageError;

use crate::support::{Model, bytes, chain, content, stage, transaction, value, write, write_all};
use crate::{LOG, OTHER};

promise! {
    async fn an_append_is_visible_and_in_the_log_on_return(harness) {
        let log = harness.own(LOG).await;
        assert_eq!(log.head(), Position::default());
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        assert_eq!(log.head(), position);
        assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
        let read = log.read_log(Lsn::ZERO, usize::MAX).await.unwrap();
        assert_eq!(read, [transaction(Position::default(), &[("a", Some("one"))])]);
    }
}

promise! {
    async fn an_append_of_several_transactions_is_one_step(harness) {
        let log = harness.own(LOG).await;
        let writes: [&[_]; 3] = [&[("a", Some("1"))], &[("a", Some("2")), ("b", Some("2"))], &[("b", None)]];
        let position = write_all(log.as_ref(), &writes).await.unwrap();
        assert_eq!((log.head(), position.lsn), (position, Lsn(3)));
        let expected = Model::replay(&chain(Position::default(), &writes));
        assert_eq!(content(log.snapshot().unwrap().as_ref()), expected.0);
    }
}

promise! {
    async fn an_append_at_another_position_is_fenced_and_changes_nothing(harness) {
        let log = harness.own(LOG).await;
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        let late = stage(log.as_ref(), vec![transaction(Position::default(), &[("a", Some("late"))])]);
        let refused = log.append(Position::default(), late).await;
        assert_eq!(refused, Err(StorageError::Fenced { actual: position }));
        assert_eq!((log.head(), value(log.as_ref(), "a").as_deref()), (position, Some("one")));
    }
}

promise! {
    async fn transactions_that_do_not_follow_each_other_are_refused(harness) {
        let log = harness.own(LOG).await;
        let twice = vec![transaction(Position::default(), &[("a", None)]), transaction(Position::default(), &[("b", None)])];
        let refused = log.append(Position::default(), stage(log.as_ref(), twice)).await;
        assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
        assert_eq!(log.head(), Position::default());
    }
}

promise! {
    async fn a_transaction_that_is_not_what_its_hash_says_is_refused(harness) {
        let log = harness.own(LOG).await;
        let mut forged = transaction(Position::default(), &[("a", Some("one"))]);
        forged.operations = transaction(Position::default(), &[("a", Some("two"))]).operations;
        let refused = log.append(Position::default(), stage(log.as_ref(), vec![forged])).await;
        assert!(matches!(refused, Err(StorageError::Corrupt(_))), "{refused:?}");
    }
}

promise! {
    async fn an_append_of_nothing_only_checks_the_position(harness) {
        let log = harness.own(LOG).await;
        let position = write(log.as_ref(), &[("a", Some("one"))]).await.unwrap();
        assert_eq!(log.append(position, Vec::new()).await, Ok(()));
        let refused = log.append(Position::default(), Vec::new()).await;
        assert_eq!(refused, Err(StorageError::Fenced { actual: position }));
    }
}

promise! {
    async fn an_append_whose_caller_goes_away_still_happens(harness) {
        let log = harness.own(LOG).await;
        let staged = stage(log.as_ref(), vec![transaction(Position::default(), &[("a", Some("one"))])]);
        let mut append = log.append(Position::default(), staged);
        let _ = append.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(append);
        assert_eq!(log.wait_past(Lsn::ZERO).await.lsn, Lsn(1));
        assert_eq!(value(log.as_ref(), "a").as_deref(), Some("one"));
    }
}

promise! {
    async fn the_later_of_two_writes_of_a_key_in_one_append_wins(harness) {
        let log = harness.own(LOG).await;
        let mut staged = stage(log.as_ref(), vec![transaction(Position::default(), &[])]);
        staged[0].writes = vec![
            (bytes("a"), Some(bytes("first"))),
            (bytes("b"), None),
            (bytes("a"), None),
            (bytes("b"), Some(bytes("last"))),
        ];
        log.append(Position::default(), staged).await.unwrap();
        assert_eq!(content(log.snapshot().unwrap().as_ref()), [(bytes("b"), bytes("last"))].into());
    }
}

promise! {
    async fn appends_to_many_logs_at_once_all_happen(harness) {
        let mut writers = tokio::task::JoinSet::new();
        for id in 0..32 {
            let log = harness.own(LogId(id)).await;
            writers.spawn(async move {
                for round in 0..20 {
                    let text = format!("{id}-{round}");
                    write(log.as_ref(), &[("key", Some(&text))]).await.unwrap();
                }
                log
            });
        }
        for log in writers.join_all().await {
            assert_eq!(log.head().lsn, Lsn(20));
            assert_eq!(value(log.as_ref(), "key"), Some(format!("{}-19", log.id().0)));
        }
        assert_eq!(harness.store.list().unwrap().len(), 32);
    }
}

promise! {
    async fn logs_do_not_see_each_other(harness) {
        let (log, other) = (harness.own(LOG).await, harness.own(OTHER).await);
        write(log.as_ref(), &[("a", Some("mine"))]).await.unwrap();
        assert_eq!(other.head(), Position::default());
        assert!(content(other.snapshot().unwrap().as_ref()).is_empty());
        assert_eq!(other.read_log(Lsn::ZERO, usize::MAX).await.unwrap(), []);
    }
}
