use std::ops::Bound;

use bytes::Bytes;
use orrery_model::Position;

use crate::LOG;
use crate::support::{Content, Model, bytes, content, stage, transaction, value, write};

promise! {
    async fn a_snapshot_does_not_change(harness) {
        let log = harness.own(LOG).await;
        let position = write(log.as_ref(), &[("a", Some("one")), ("b", Some("one"))]).await.unwrap();
        let before = log.snapshot().unwrap();
        let seen = content(before.as_ref());
        for _ in 0..50 {
            write(log.as_ref(), &[("a", Some("two")), ("b", None), ("c", Some("two"))]).await.unwrap();
        }
        harness.checkpoint().await;
        assert_eq!((content(before.as_ref()), before.position()), (seen, position));
        let after = log.snapshot().unwrap();
        assert_eq!(after.position(), log.head());
        assert_eq!(after.get(b"k/b").unwrap(), None);
        assert_eq!(value(log.as_ref(), "c").as_deref(), Some("two"));
    }
}

promise! {
    async fn a_scan_keeps_to_its_bounds_in_both_directions(harness) {
        let log = harness.own(LOG).await;
        let keys = ["", "a", "a\0", "ab", "b", "ba", "c", "\u{7f}"];
        let mut staged = stage(log.as_ref(), vec![transaction(Position::default(), &[])]);
        staged[0].writes = keys.iter().map(|key| (bytes(key), Some(bytes(&format!("value of {key}"))))).collect();
        log.append(Position::default(), staged).await.unwrap();
        let model = Model(keys.iter().map(|key| (bytes(key), bytes(&format!("value of {key}")))).collect());
        let snapshot = log.snapshot().unwrap();
        let limits = [Bound::Unbounded, Bound::Included("a"), Bound::Excluded("a"), Bound::Included("b"),
            Bound::Excluded("b"), Bound::Included("bb"), Bound::Excluded("")];
        for from in limits {
            for to in limits {
                for reverse in [false, true] {
                    let (from, to) = (from.map(str::as_bytes), to.map(str::as_bytes));
                    let expected = model_scan(&model.0, from, to, reverse);
                    let found: Vec<_> = snapshot.scan(from, to, reverse).map(|entry| entry.unwrap()).collect();
                    assert_eq!(found, expected, "{from:?} {to:?} {reverse}");
                }
            }
        }
    }
}

/// What lies within the bounds, which may be inverted.
fn model_scan(content: &Content, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Vec<(Bytes, Bytes)> {
    use std::ops::RangeBounds;
    let within = content
        .iter()
        .filter(|(key, _)| RangeBounds::<[u8]>::contains(&(from, to), key.as_ref()));
    let mut found: Vec<_> = within.map(|(key, value)| (key.clone(), value.clone())).collect();
    if reverse {
        found.reverse();
    }
    found
}

promise! {
    async fn a_long_scan_sees_one_moment_while_appends_go_on(harness) {
        let log = harness.own(LOG).await;
        let keys: Vec<String> = (0..2000).map(|number| format!("{number:05}")).collect();
        let all = |value: &'static str| keys.iter().map(|key| (key.as_str(), Some(value))).collect::<Vec<_>>();
        write(log.as_ref(), &all("old")).await.unwrap();
        let snapshot = log.snapshot().unwrap();
        let mut scan = snapshot.scan(Bound::Included(b"k/"), Bound::Excluded(b"k0"), false);
        assert!(scan.next().is_some());
        write(log.as_ref(), &all("new")).await.unwrap();
        let rest: Vec<_> = scan.map(|entry| entry.unwrap().1).collect();
        assert_eq!(rest.len(), 1999);
        assert!(rest.iter().all(|value| value == "old"));
    }
}

promise! {
    async fn a_view_is_what_its_writes_make_of_it(harness) {
        let log = harness.own(LOG).await;
        let mut model = Vec::new();
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        let mut kept = Vec::new();
        for round in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, is_removal) = (format!("key {}", (random >> 33) % 40), (random >> 60).is_multiple_of(4));
            let text = format!("round {round}");
            let writes = [(key.as_str(), (!is_removal).then_some(text.as_str()))];
            model.push(transaction(log.head(), &writes));
            write(log.as_ref(), &writes).await.unwrap();
            if round % 60 == 30 {
                kept.push((log.snapshot().unwrap(), model.len()));
                harness.checkpoint().await;
            }
        }
        for (snapshot, length) in kept {
            assert_eq!(content(snapshot.as_ref()), Model::replay(&model[..length]).0);
        }
        assert_eq!(content(log.snapshot().unwrap().as_ref()), Model::replay(&model).0);
    }
}

promise! {
    async fn a_view_stays_right_while_snapshots_come_and_go(harness) {
        let log = harness.own(LOG).await;
        let mut model = Vec::new();
        let mut kept = std::collections::VecDeque::new();
        for round in 0..200 {
            let (key, text) = (format!("key {}", round % 7), format!("round {round}"));
            let writes = [(key.as_str(), (round % 5 != 0).then_some(text.as_str()))];
            model.push(transaction(log.head(), &writes));
            write(log.as_ref(), &writes).await.unwrap();
            kept.push_back((log.snapshot().unwrap(), model.len()));
            if kept.len() > 1 + round % 4 {
                let (snapshot, length) = kept.pop_front().unwrap();
                assert_eq!(content(snapshot.as_ref()), Model::replay(&model[..length]).0, "round {round}");
            }
        }
        kept.clear();
        write(log.as_ref(), &[]).await.unwrap();
        assert_eq!(content(log.snapshot().unwrap().as_ref()), Model::replay(&model).0);
    }
}
