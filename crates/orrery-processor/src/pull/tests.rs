use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::start::Position;
use crate::testkit::ScriptedFeed;
use crate::token::FeedToken;

fn cursor(texts: &[(&str, u64)]) -> Cursor {
    let part = |(range, lsn): &(&str, u64)| Part {
        range: range.parse().unwrap(),
        position: Position::After(FeedToken::at(*lsn)),
    };
    Cursor {
        container_rid: "c1".into(),
        mode: FeedMode::LatestVersion,
        parts: texts.iter().map(part).collect(),
        key: None,
    }
}

async fn drain(puller: &mut Puller) -> Vec<u64> {
    let mut lsns = Vec::new();
    while let Some(page) = puller.next().await.unwrap() {
        lsns.extend(page.changes.iter().filter_map(|change| change.metadata.lsn));
    }
    lsns.sort_unstable();
    lsns
}

fn write(feed: &ScriptedFeed, n: usize) {
    for number in 0..n {
        feed.put(&format!("k{number}"), "item", json!(number));
    }
}

#[test]
fn a_range_goes_to_the_earliest_of_the_places_it_spans_and_nowhere_if_one_is_missing() {
    let kept = cursor(&[("-10", 7), ("10-20", 3), ("30-FF", 9)]);
    let place = |range: &str| kept.position_of(&range.parse().unwrap())?.token()?.lsn();
    assert_eq!(
        [place("-08"), place("08-18"), place("30-40")],
        [Some(7), Some(3), Some(9)]
    );
    assert_eq!([place("18-28"), place("20-30"), place("-FF")], [None; 3]);
}

#[tokio::test]
async fn a_resumed_cursor_sees_only_what_is_new_through_splits_and_merges() {
    let feed = ScriptedFeed::new(2);
    write(&feed, 50);
    let mode = FeedMode::LatestVersion;
    let mut puller = Puller::start(feed.clone(), EpkRange::full(), StartFrom::Beginning, mode)
        .await
        .unwrap();
    assert_eq!(drain(&mut puller).await.len(), 50);
    for (number, change) in [ScriptedFeed::split as fn(&ScriptedFeed, usize), ScriptedFeed::merge]
        .into_iter()
        .enumerate()
    {
        let kept = puller.cursor().to_text();
        change(&feed, number);
        write(&feed, 20);
        puller = Puller::resume(feed.clone(), Cursor::parse(&kept).unwrap(), mode)
            .await
            .unwrap()
            .with_max_items(7);
        assert_eq!(drain(&mut puller).await.len(), 20);
    }
}

#[tokio::test]
async fn now_is_one_moment_for_ranges_that_were_not_read_yet() {
    let feed = ScriptedFeed::new(4);
    write(&feed, 10);
    let mode = FeedMode::AllVersionsAndDeletes;
    let puller = Puller::start(feed.clone(), EpkRange::full(), StartFrom::Now, mode)
        .await
        .unwrap();
    let kept = puller.cursor().to_text();
    for number in 0..10 {
        feed.delete(&format!("k{number}"), "item");
    }
    let mut puller = Puller::resume(feed, Cursor::parse(&kept).unwrap(), mode).await.unwrap();
    assert_eq!(drain(&mut puller).await.len(), 10);
}

#[tokio::test]
async fn cursors_of_another_container_or_mode_are_refused() {
    let feed = ScriptedFeed::new(1);
    let other = Cursor {
        container_rid: "other".into(),
        ..cursor(&[("-FF", 1)])
    };
    let refused = Puller::resume(feed.clone(), other, FeedMode::LatestVersion)
        .await
        .unwrap_err();
    assert!(matches!(refused, PullError::Cursor(BadCursor::OtherContainer)));
    let refused = Puller::resume(feed, cursor(&[("-FF", 1)]), FeedMode::AllVersionsAndDeletes)
        .await
        .unwrap_err();
    assert!(matches!(refused, PullError::Cursor(BadCursor::OtherMode)));
}

#[test]
fn text_that_is_no_cursor_is_refused() {
    for text in [
        "",
        "x",
        "e30",
        &URL_SAFE_NO_PAD.encode(r#"{"v":2,"rid":"c","mode":"Incremental Feed","parts":[]}"#),
    ] {
        assert_eq!(Cursor::parse(text), Err(BadCursor::Malformed), "{text}");
    }
    let twice = cursor(&[("-20", 1), ("10-FF", 2)]).to_text();
    assert_eq!(Cursor::parse(&twice), Err(BadCursor::Overlap));
}

#[tokio::test]
async fn one_cursor_among_four_workers_and_back_misses_and_repeats_nothing() {
    let feed = ScriptedFeed::new(1);
    write(&feed, 40);
    let mode = FeedMode::LatestVersion;
    let puller = Puller::start(feed.clone(), EpkRange::full(), StartFrom::Beginning, mode)
        .await
        .unwrap();
    let mut seen = Vec::new();
    let mut left = Vec::new();
    for cursor in puller.cursor().split(4) {
        let mut worker = Puller::resume(feed.clone(), cursor, mode).await.unwrap();
        seen.extend(drain(&mut worker).await);
        left.push(worker.cursor().clone());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<_>>());
    let joined = Cursor::join(left).unwrap();
    assert_eq!(joined.parts.len(), 1, "neighbours at one place are one range again");
    write(&feed, 5);
    let mut alone = Puller::resume(feed, joined, mode).await.unwrap();
    assert_eq!(drain(&mut alone).await.len(), 5);
}

proptest! {
    #[test]
    fn sharing_out_and_joining_covers_the_same_keys(n in 1usize..20, bounds in prop::collection::btree_set("[0-3][0-9A-F]{1,5}", 0..5)) {
        let mut from = String::new();
        let mut texts: Vec<String> = Vec::new();
        for bound in bounds.iter().map(String::as_str).chain(["FF"]) {
            texts.push(format!("{from}-{bound}"));
            from = bound.to_owned();
        }
        let parts: Vec<(&str, u64)> = texts.iter().enumerate().map(|(number, text)| (text.as_str(), number as u64)).collect();
        let whole = cursor(&parts);
        let shared = whole.split(n);
        prop_assert!(shared.len() <= n && !shared.is_empty());
        prop_assert_eq!(Cursor::join(shared).unwrap(), whole);
    }
}

#[tokio::test]
async fn one_key_is_read_alone_across_splits_and_its_place_is_kept() {
    let feed = ScriptedFeed::new(2);
    write(&feed, 20);
    let (key, mode) = (vec![json!("k7")], FeedMode::LatestVersion);
    let start = Puller::start_key(feed.clone(), key.clone(), StartFrom::Beginning, mode);
    let mut puller = start.await.unwrap();
    assert_eq!(drain(&mut puller).await, [8]);
    let kept = Cursor::parse(&puller.cursor().to_text()).unwrap();
    assert_eq!((&kept, kept.key()), (puller.cursor(), Some(key.as_slice())));
    assert_eq!(kept.split(4), std::slice::from_ref(&kept));
    feed.split(0);
    feed.split(2);
    write(&feed, 20);
    let mut puller = Puller::resume(feed.clone(), kept.clone(), mode).await.unwrap();
    assert_eq!(drain(&mut puller).await, [28]);
    let leases = crate::store::MemoryLeases::new();
    let unit = crate::operations::Operations::open("unit", feed, leases, Duration::from_secs(60));
    let refused = unit.await.unwrap().start_at(&kept).await.unwrap_err();
    assert!(matches!(refused, PullError::Cursor(BadCursor::NotRanges)), "{refused}");
}

#[test]
fn a_cursor_keeps_the_time_its_reader_began_at() {
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_681_302);
    let since = |lsn| Position::AfterSince(FeedToken::at(lsn), time);
    let mut kept = cursor(&[("-10", 7), ("10-20", 3), ("20-FF", 9)]);
    (kept.parts[0].position, kept.parts[1].position) = (since(7), since(3));
    assert_eq!(Cursor::parse(&kept.to_text()).unwrap(), kept);
    assert_eq!(Cursor::join(kept.split(8)).unwrap(), kept);
    let place = |range: &str| kept.position_of(&range.parse().unwrap());
    assert_eq!(place("-20"), Some(since(3)));
    let without = Position::After(FeedToken::at(3));
    assert_eq!(
        place("-FF"),
        Some(without),
        "a part of it is for a reader of everything"
    );
}
