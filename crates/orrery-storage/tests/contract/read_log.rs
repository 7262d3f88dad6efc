use orrery_model::{Lsn, Position};
use orrery_partition::storage::StorageError;

use crate::LOG;
use crate::support::{chain, content, write, write_all};

promise! {
    async fn reading_gives_what_was_appended_after(harness) {
        let log = harness.own(LOG).await;
        let writes: [&[_]; 3] = [&[("a", Some("1"))], &[("b", Some("2"))], &[("c", Some("3"))]];
        write_all(log.as_ref(), &writes).await.unwrap();
        let fourth = write(log.as_ref(), &[("d", None)]).await.unwrap();
        let expected = chain(Position::default(), &[writes[0], writes[1], writes[2], &[("d", None)]]);
        for after in 0..4 {
            let read = log.read_log(Lsn(after), usize::MAX).await.unwrap();
            assert_eq!(read, expected[after as usize..], "after {after}");
        }
        assert_eq!(log.read_log(fourth.lsn, usize::MAX).await.unwrap(), []);
    }
}

promise! {
    async fn reading_stops_near_the_limit_but_gives_at_least_one(harness) {
        let log = harness.own(LOG).await;
        let text = "x".repeat(1000);
        for _ in 0..20 {
            write(log.as_ref(), &[("a", Some(&text))]).await.unwrap();
        }
        assert_eq!(log.read_log(Lsn::ZERO, 0).await.unwrap().len(), 1);
        let some = log.read_log(Lsn(2), 5000).await.unwrap();
        assert!((3..=7).contains(&some.len()), "{} transactions", some.len());
        assert_eq!(some[0].lsn, Lsn(3));
    }
}

promise! {
    async fn waiting_ends_when_the_head_has_passed(harness) {
        let log = harness.own(LOG).await;
        let first = write(log.as_ref(), &[("a", None)]).await.unwrap();
        assert_eq!(log.wait_past(Lsn::ZERO).await, first);
        let waiter = {
            let log = log.clone();
            tokio::spawn(async move { log.wait_past(Lsn(2)).await })
        };
        write(log.as_ref(), &[("a", None)]).await.unwrap();
        let third = write(log.as_ref(), &[("a", None)]).await.unwrap();
        assert_eq!(waiter.await.unwrap(), third);
    }
}

promise! {
    async fn trimming_forgets_the_log_and_never_the_view(harness) {
        let log = harness.own(LOG).await;
        for _ in 0..5 {
            write(log.as_ref(), &[("a", Some("value"))]).await.unwrap();
        }
        let view = content(log.snapshot().unwrap().as_ref());
        harness.checkpoint().await;
        assert_eq!(log.trim(Lsn(3)).await, Ok(Lsn(3)));
        assert_eq!(log.read_log(Lsn(2), usize::MAX).await, Err(StorageError::Trimmed { start: Lsn(3) }));
        let rest: Vec<_> = log.read_log(Lsn(3), usize::MAX).await.unwrap().iter().map(|one| one.lsn.0).collect();
        assert_eq!(rest, [4, 5]);
        assert_eq!(content(log.snapshot().unwrap().as_ref()), view);
        assert_eq!(log.trim(Lsn(1)).await, Ok(Lsn(3)), "trimming never gives back");
        assert_eq!(log.trim(Lsn(99)).await, Ok(Lsn(5)), "there is no more than the head");
        assert_eq!(log.read_log(Lsn(5), usize::MAX).await.unwrap(), []);
        write(log.as_ref(), &[("b", Some("more"))]).await.unwrap();
        assert_eq!(log.read_log(Lsn(5), usize::MAX).await.unwrap().len(), 1);
    }
}

promise! {
    async fn a_hold_keeps_what_comes_after_it(harness) {
        let log = harness.own(LOG).await;
        for _ in 0..6 {
            write(log.as_ref(), &[("a", Some("value"))]).await.unwrap();
        }
        harness.checkpoint().await;
        let (hold, higher) = (log.hold(Lsn(2)), log.hold(Lsn(4)));
        assert_eq!(log.trim(Lsn(6)).await, Ok(Lsn(2)));
        assert_eq!(log.read_log(Lsn(2), usize::MAX).await.unwrap().len(), 4);
        hold.advance(Lsn(3));
        hold.advance(Lsn(1));
        assert_eq!(log.trim(Lsn(6)).await, Ok(Lsn(3)), "a hold never moves back");
        drop(hold);
        assert_eq!(log.trim(Lsn(6)).await, Ok(Lsn(4)));
        drop(higher);
        assert_eq!(log.trim(Lsn(6)).await, Ok(Lsn(6)));
    }
}
