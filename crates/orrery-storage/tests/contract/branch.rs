use orrery_model::LogId;
use orrery_partition::storage::StorageError;

use crate::support::{content, value, write};
use crate::{LOG, OTHER};

promise! {
    async fn a_branch_shows_what_the_log_showed_and_each_goes_its_own_way(harness) {
        let log = harness.own(LOG).await;
        write(log.as_ref(), &[("a", Some("one")), ("b", Some("two")), ("c", Some("three"))]).await.unwrap();
        let position = write(log.as_ref(), &[("b", Some("2"))]).await.unwrap();
        let snapshot = log.snapshot().unwrap();
        let before = content(snapshot.as_ref());
        if !harness.store.branch(LOG, OTHER).await.unwrap() {
            return;
        }
        let branch = harness.own(OTHER).await;
        assert_eq!((log.head(), branch.head()), (position, position));
        assert_eq!(content(log.snapshot().unwrap().as_ref()), before);
        assert_eq!(content(branch.snapshot().unwrap().as_ref()), before);

        write(log.as_ref(), &[("a", Some("changed")), ("b", None), ("d", Some("new"))]).await.unwrap();
        write(branch.as_ref(), &[("c", None)]).await.unwrap();
        write(branch.as_ref(), &[("c", Some("again")), ("a", None)]).await.unwrap();
        let all = ["a", "b", "c", "d"];
        let shown = all.map(|key| value(log.as_ref(), key));
        assert_eq!(shown.each_ref().map(Option::as_deref), [Some("changed"), None, Some("three"), Some("new")]);
        let shown = all.map(|key| value(branch.as_ref(), key));
        assert_eq!(shown.each_ref().map(Option::as_deref), [None, Some("2"), Some("again"), None]);
        assert_eq!(content(snapshot.as_ref()), before, "what was read before stays");
        assert_eq!(branch.read_log(position.lsn, usize::MAX).await.unwrap().len(), 2);

        let again = harness.store.branch(LOG, OTHER).await;
        assert_eq!(again, Err(StorageError::Fenced { actual: branch.head() }));
        let missing = harness.store.branch(LogId(99), LogId(98)).await;
        assert!(matches!(missing, Err(StorageError::Unavailable(_))), "{missing:?}");

        // What they share stays as long as one of them needs it.
        let left = content(branch.snapshot().unwrap().as_ref());
        drop((snapshot, log));
        harness.store.drop_log(LOG).await.unwrap();
        harness.checkpoint().await;
        assert_eq!(content(branch.snapshot().unwrap().as_ref()), left);
    }
}

promise! {
    async fn a_log_that_is_not_written_can_be_branched_for_ever(harness) {
        let log = harness.own(LOG).await;
        write(log.as_ref(), &[("a", Some("one")), ("b", Some("two"))]).await.unwrap();
        if !harness.store.branch(LOG, OTHER).await.unwrap() {
            return;
        }
        let expected = content(log.snapshot().unwrap().as_ref());
        for n in 0..20 {
            let id = LogId(100 + n);
            assert!(harness.store.branch(OTHER, id).await.unwrap(), "{n}");
            let branch = harness.own(id).await;
            assert_eq!(content(branch.snapshot().unwrap().as_ref()), expected, "{n}");
            write(branch.as_ref(), &[("a", None), ("n", Some("own"))]).await.unwrap();
            harness.store.drop_log(id).await.unwrap();
        }
    }
}

promise! {
    async fn a_log_that_stands_on_too_many_others_is_not_branched_and_stays_as_it_is(harness) {
        let log = harness.own(LOG).await;
        let mut refused = false;
        for n in 0..20 {
            let text = n.to_string();
            write(log.as_ref(), &[(&text, Some("here")), ("last", Some(&text))]).await.unwrap();
            refused |= !harness.store.branch(LOG, LogId(100 + n)).await.unwrap();
        }
        assert!(refused, "reading would become dearer and dearer");
        assert_eq!(value(log.as_ref(), "last").as_deref(), Some("19"));
        assert!((0..20).all(|n| value(log.as_ref(), &n.to_string()).as_deref() == Some("here")));
    }
}
