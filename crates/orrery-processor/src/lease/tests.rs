use serde_json::{Value, json};

use super::*;

/// Documents as other processors write them, with the server's own fields.
const GOLDEN: [(&str, &str); 5] = [
    ("dotnet_v0", include_str!("../../tests/golden/dotnet_v0.json")),
    ("dotnet_v1", include_str!("../../tests/golden/dotnet_v1.json")),
    (
        "dotnet_v1_all_versions",
        include_str!("../../tests/golden/dotnet_v1_all_versions.json"),
    ),
    (
        "dotnet_migrated_from_v2",
        include_str!("../../tests/golden/dotnet_migrated_from_v2.json"),
    ),
    (
        "dotnet_keyed_by_partition_key",
        include_str!("../../tests/golden/dotnet_keyed_by_partition_key.json"),
    ),
];

pub fn me(started_ms: u64) -> HostMark {
    HostMark {
        name: "pod-7".into(),
        incarnation: Incarnation { started_ms, chance: 9 },
    }
}

fn lease() -> Lease {
    Lease {
        continuation: Some(FeedToken::at(10)),
        ..Lease::for_range("unit..-FF".into(), EpkRange::full(), FeedMode::LatestVersion)
    }
}

#[test]
fn golden_documents_are_read_and_written_unchanged() {
    for (name, text) in GOLDEN {
        let mut document: Value = serde_json::from_str(text).unwrap();
        let lease = Lease::from_document(&document).unwrap();
        assert!(lease.etag.is_some() && lease.written_at_s.is_some(), "{name}");
        let fields = document.as_object_mut().unwrap();
        fields.retain(|field, _| !field.starts_with('_'));
        assert_eq!(lease.to_document(), document, "{name}");
    }
}

#[test]
fn an_acquired_lease_keeps_what_other_hosts_wrote() {
    for (name, text) in GOLDEN {
        let lease = Lease::from_document(&serde_json::from_str(text).unwrap()).unwrap();
        let taken = lease.acquired(&me(1), Takeover::Clean, "2026-08-20T09:15:02.123Z");
        assert_eq!(taken.owner(), Some("pod-7"), "{name}");
        assert_eq!(
            (&taken.partition_id, &taken.partition_key),
            (&lease.partition_id, &lease.partition_key)
        );
        assert_eq!(
            (&taken.continuation, taken.version),
            (&lease.continuation, lease.version)
        );
        assert!(
            lease.properties.keys().all(|key| taken.properties.contains_key(key)),
            "{name}"
        );
    }
}

#[test]
fn a_lease_without_a_mode_reads_latest_versions() {
    let lease = Lease::from_document(&json!({"id": "x..0", "LeaseToken": "0"})).unwrap();
    assert_eq!(
        (lease.version, lease.feed_mode(), lease.range),
        (0, FeedMode::LatestVersion, None)
    );
    assert!(Lease::from_document(&json!({"id": "x..0"})).is_err());
}

#[test]
fn an_epk_lease_that_lost_its_range_has_it_in_its_token() {
    let lease = Lease::from_document(&json!({"id": "x", "version": 1, "LeaseToken": "10-FF"})).unwrap();
    assert_eq!(lease.range, Some("10-FF".parse().unwrap()));
}

#[test]
fn each_acquisition_raises_the_epoch_and_a_crash_is_counted_until_the_position_moves() {
    let first = lease().acquired(&me(1), Takeover::Clean, "t");
    assert_eq!((first.epoch(), first.n_crashes()), (1, 0));
    let second = first
        .acquired(&me(2), Takeover::AfterCrash, "t")
        .suspecting("one,two", "t");
    assert_eq!(
        (second.epoch(), second.n_crashes(), second.suspects().count()),
        (2, 1, 2)
    );
    let third = second.acquired(&me(3), Takeover::AfterCrash, "t");
    assert_eq!((third.n_crashes(), third.suspects().count()), (2, 2));
    let moved = third.checkpointed(FeedToken::at(11), "t");
    assert_eq!((moved.n_crashes(), moved.suspects().count(), moved.epoch()), (0, 0, 3));
    let freed = third.released("t");
    assert_eq!((freed.owner(), freed.incarnation()), (None, None));
    assert_eq!(
        (freed.n_crashes(), freed.suspects().count()),
        (2, 0),
        "a clean release does not make the batch a good one, and says nothing against the change it was at"
    );
    let again = freed.acquired(&me(4), Takeover::Clean, "t");
    assert_eq!(again.n_crashes(), 2);
}

#[test]
fn failed_attempts_are_remembered_until_the_position_is_another_one() {
    let failing = lease().acquired(&me(1), Takeover::Clean, "t").having_failed(3);
    let other = HostMark {
        name: "pod-8".into(),
        ..me(2)
    };
    let elsewhere = failing.handed_to(&other, "t").acquired(&other, Takeover::Clean, "t");
    assert_eq!((elsewhere.n_failures(), failing.released("t").n_failures()), (3, 3));
    let moved = [
        elsewhere.checkpointed(FeedToken::at(11), "t"),
        elsewhere.reset(&Position::After(FeedToken::at(1)), "t"),
        elsewhere.child("c".into(), "0".into(), 0, EpkRange::full()),
    ];
    assert!(
        moved
            .iter()
            .all(|lease| lease.n_failures() == 0 && lease.n_crashes() == 0)
    );
}

#[test]
fn a_lease_that_another_kind_of_host_has_taken_is_not_held_by_us() {
    let ours = lease().acquired(&me(1), Takeover::Clean, "t");
    assert!(ours.is_held_by_us() && !ours.released("t").is_held_by_us());
    let given = ours.handed_to(
        &HostMark {
            name: "pod-8".into(),
            ..me(2)
        },
        "t",
    );
    assert!(given.is_held_by_us());
    // .NET writes its own name and keeps the properties as they are.
    let theirs = Lease {
        owner: Some("dotnet".into()),
        ..ours
    };
    assert!(!theirs.is_held_by_us() && theirs.epoch() == 1);
}

#[test]
fn a_checkpoint_never_moves_a_lease_back() {
    let moved = lease().checkpointed(FeedToken::at(9), "t");
    assert_eq!(moved.continuation, Some(FeedToken::at(10)));
}

#[test]
fn the_fresh_document_decides_who_goes_on() {
    let check = |fresh: Lease, expected: Conflict| assert_eq!(judge(&fresh, &me(5)), expected);
    let other = HostMark {
        name: "pod-8".into(),
        ..me(1)
    };
    check(lease().acquired(&me(5), Takeover::Clean, "t"), Conflict::StillMine);
    check(lease().acquired(&me(6), Takeover::Clean, "t"), Conflict::NewerNamesake);
    check(lease().acquired(&me(4), Takeover::Clean, "t"), Conflict::OlderNamesake);
    check(
        lease().acquired(&other, Takeover::Clean, "t"),
        Conflict::Lost {
            to: Some("pod-8".into()),
        },
    );
    check(lease().released("t"), Conflict::Lost { to: None });
}

#[test]
fn java_leases_are_recognised_and_their_positions_imported() {
    let document: Value = serde_json::from_str(include_str!("../../tests/golden/java_epk.json")).unwrap();
    assert_eq!(detect_foreign(&document), Some(Foreign::JavaEpk));
    let leases = import_foreign(&document, |range| format!("unit..{range}")).unwrap();
    assert_eq!(leases.len(), 1);
    assert_eq!(leases[0].continuation, Some(FeedToken::at(48213)));
    assert_eq!(leases[0].id, "unit..-05C1DFFFFFFFFC");
    for (name, text) in GOLDEN {
        assert_eq!(detect_foreign(&serde_json::from_str(text).unwrap()), None, "{name}");
    }
}

#[test]
fn a_lease_that_began_at_a_time_keeps_it_beside_its_token_until_it_is_moved() {
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_755_681_302);
    let range = EpkRange::full();
    let new = Lease::for_range("u..-FF".into(), range.clone(), FeedMode::LatestVersion);
    let lease = new.clone().with_start(StartFrom::Time(time).to_text());
    let lease = lease
        .checkpointed(FeedToken::at(5), "")
        .checkpointed(FeedToken::at(7), "");
    let since = Position::AfterSince(FeedToken::at(7), time);
    assert_eq!(lease.position(), Some(since.clone()));
    let child = lease.child("u..-10".into(), "-10".into(), 1, "-10".parse().unwrap());
    assert_eq!(child.position(), Some(since.clone()), "so do its children");
    let token = Position::After(FeedToken::at(3));
    let moved = lease.reset(&token, "");
    assert_eq!(moved.position(), Some(token));
    assert_eq!(moved.reset(&since, "").position(), Some(since));
    let everything = new
        .with_start(StartFrom::Beginning.to_text())
        .checkpointed(FeedToken::at(5), "");
    assert_eq!(
        (everything.start(), everything.position()),
        (None, Some(Position::After(FeedToken::at(5))))
    );
}
