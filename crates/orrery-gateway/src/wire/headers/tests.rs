use orrery_model::Lsn;
use orrery_model::key::KeyComponent;
use proptest::prelude::*;

use super::*;

fn with<T>(headers: &[(&str, &str)], read: impl FnOnce(Headers<'_>) -> T) -> T {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    read(Headers::of(&map))
}

fn refused<T: std::fmt::Debug>(headers: &[(&str, &str)], read: impl FnOnce(Headers<'_>) -> Result<T>) -> String {
    let error = with(headers, read).expect_err("should be refused");
    assert_eq!(error.status().code, 400);
    error.message().to_owned()
}

#[test]
fn booleans_are_read_in_any_case() {
    for (value, expected) in [
        ("true", true),
        ("True", true),
        (" TRUE ", true),
        ("false", false),
        ("False", false),
        ("1", false),
        ("", false),
    ] {
        assert_eq!(
            with(&[("x-ms-documentdb-is-upsert", value)], |headers| headers
                .flag(&name::IS_UPSERT)),
            expected,
            "{value:?}"
        );
    }
    assert!(!with(&[], |headers| headers.flag(&name::IS_UPSERT)));
}

#[test]
fn a_header_is_found_among_any_others() {
    let all = [
        "x-ms-date",
        "x-ms-version",
        "authorization",
        "accept",
        "host",
        "user-agent",
        "x-ms-documentdb-partitionkey",
        "x-ms-session-token",
        "a",
    ];
    let pairs: Vec<(&str, &str)> = all.iter().map(|name| (*name, *name)).collect();
    with(&pairs, |headers| {
        for name in all {
            let found = headers.get(&HeaderName::from_static(name)).unwrap();
            assert_eq!(found, name);
        }
        for name in [name::PREFER, name::IF_MATCH, name::ACTIVITY_ID, name::CONTENT_TYPE] {
            assert_eq!(headers.get(&name), None, "{name}");
        }
    });
}

#[test]
fn an_activity_id_is_taken_only_if_it_is_a_uuid() {
    let uuid = "6b1e6a7c-55e3-4f62-8c9c-4ad4dbb8e4a3";
    let read = |value| with(&[("x-ms-activity-id", value)], |headers| headers.activity_id());
    assert_eq!(read(uuid).unwrap().as_str(), uuid);
    for value in [
        "",
        "x",
        "6b1e6a7c55e34f628c9c4ad4dbb8e4a3",
        "6b1e6a7c-55e3-4f62-8c9c-4ad4dbb8e4ag",
        "{6b1e6a7c-55e3-4f62-8c9c-4ad4dbb8e4}",
    ] {
        assert_eq!(read(value), None, "{value}");
    }
}

#[test]
fn a_request_may_weaken_the_consistency_of_its_account_but_not_strengthen_it() {
    let read = |level, account| {
        with(&[("x-ms-consistency-level", level)], |headers| {
            headers.options(account).map(|options| options.consistency)
        })
    };
    assert_eq!(
        read("Eventual", Consistency::Strong).unwrap(),
        Some(Consistency::Eventual)
    );
    assert_eq!(
        read("session", Consistency::Session).unwrap(),
        Some(Consistency::Session)
    );
    assert!(
        read("Strong", Consistency::Session)
            .unwrap_err()
            .message()
            .contains("stronger")
    );
    assert_eq!(read("Quick", Consistency::Session).unwrap_err().status().code, 400);
    assert_eq!(
        with(&[], |headers| headers.options(Consistency::Strong))
            .unwrap()
            .consistency,
        None
    );
}

#[test]
fn a_read_consistency_strategy_stands_for_a_level() {
    let read = |strategy, account| {
        with(&[("x-ms-cosmos-read-consistency-strategy", strategy)], |headers| {
            headers.options(account).map(|options| options.consistency)
        })
    };
    assert_eq!(
        read("Eventual", Consistency::Session).unwrap(),
        Some(Consistency::Eventual)
    );
    assert_eq!(
        read("LatestCommitted", Consistency::Strong).unwrap(),
        Some(Consistency::BoundedStaleness)
    );
    assert_eq!(
        read("LatestCommitted", Consistency::Session).unwrap(),
        Some(Consistency::Session)
    );
    assert_eq!(read("Default", Consistency::Session).unwrap(), None);
    assert_eq!(
        read("GlobalStrong", Consistency::Strong).unwrap(),
        Some(Consistency::Strong)
    );
    assert_eq!(
        read("GlobalStrong", Consistency::Session).unwrap_err().status().code,
        400
    );
    let both = [
        ("x-ms-consistency-level", "Session"),
        ("x-ms-cosmos-read-consistency-strategy", "Session"),
    ];
    assert!(refused(&both, |headers| headers.options(Consistency::Session)).contains("not both"));
}

#[test]
fn session_tokens_of_several_partitions_are_read_and_blank_ones_are_none() {
    let read = |token| {
        with(&[("x-ms-session-token", token)], |headers| {
            headers.options(Consistency::Session).map(|options| options.session)
        })
    };
    let token = read("0:0#42,1:-1#7").unwrap().unwrap();
    assert_eq!(token.get(PartitionId(1)).unwrap().lsn, Lsn(7));
    assert_eq!(read("").unwrap(), None);
    assert_eq!(read(",").unwrap(), None);
    assert_eq!(read("nonsense").unwrap_err().status().code, 400);
}

#[test]
fn a_range_id_may_name_its_container() {
    let headers = [("x-ms-documentdb-partitionkeyrangeid", "Lx1BALxJyZ8=,3")];
    assert_eq!(
        with(&headers, |headers| headers.partition_id()).unwrap(),
        Some(PartitionId(3))
    );
    let options = with(&headers, |headers| headers.options(Consistency::Session)).unwrap();
    assert_eq!(options.intended_container, ResourceId::parse("Lx1BALxJyZ8="));
    assert_eq!(
        with(&[("x-ms-documentdb-partitionkeyrangeid", "0")], |headers| headers
            .partition_id())
        .unwrap(),
        Some(PartitionId(0))
    );
    for id in ["x", "-1", "0,", "*,0", "99999999999"] {
        refused(&[("x-ms-documentdb-partitionkeyrangeid", id)], |headers| {
            headers.partition_id()
        });
    }
}

#[test]
fn the_intended_container_is_a_resource_id() {
    let options = |rid| {
        with(&[("x-ms-cosmos-intended-collection-rid", rid)], |headers| {
            headers.options(Consistency::Session)
        })
    };
    assert_eq!(
        options("Lx1BALxJyZ8=").unwrap().intended_container,
        ResourceId::parse("Lx1BALxJyZ8=")
    );
    assert_eq!(options("?").unwrap_err().status().code, 400);
}

#[test]
fn partition_keys_of_every_kind_are_read() {
    let read = |text| {
        with(&[("x-ms-documentdb-partitionkey", text)], |headers| {
            headers.partition_key()
        })
    };
    let key = |components: &[KeyComponent]| Some(PartitionKey::new(components.to_vec()));
    assert_eq!(read(r#"["a"]"#).unwrap(), key(&[KeyComponent::String("a".into())]));
    assert_eq!(
        read(r#"["\u00e9", 5, true, null]"#).unwrap(),
        key(&[
            KeyComponent::String("é".into()),
            KeyComponent::Number(5.0),
            KeyComponent::Bool(true),
            KeyComponent::Null
        ])
    );
    assert_eq!(read("[{}]").unwrap(), key(&[KeyComponent::Undefined]));
    assert_eq!(read("[]").unwrap(), key(&[]));
    assert_eq!(read("").unwrap(), None);
    for text in ["a", "[", "[[1]]", r#"[{"a":1}]"#, "5", "[1] 2"] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn a_feed_may_be_narrowed_to_a_range_of_effective_keys_that_starts_at_nothing() {
    let headers = [
        ("x-ms-start-epk", ""),
        ("x-ms-end-epk", "1fFF"),
        ("x-ms-read-key-type", "EffectivePartitionKeyRange"),
    ];
    let target = with(&headers, |headers| headers.feed_target()).unwrap();
    assert_eq!((target.epk_min, target.epk_max), (None, Epk::parse("1FFF")));
    refused(&[("x-ms-start-epk", "xy")], |headers| headers.feed_target());
    refused(&[("x-ms-start-epk", &"0".repeat(EPK_DIGITS_MAX + 1))], |headers| {
        headers.feed_target()
    });
    refused(&[("x-ms-read-key-type", "EffectivePartitionKey")], |headers| {
        headers.feed_target()
    });
}

#[test]
fn page_sizes_of_minus_one_and_zero_leave_the_choice_to_the_server() {
    let read = |size| with(&[("x-ms-max-item-count", size)], |headers| headers.page()).map(|page| page.n_items_max);
    assert_eq!(read("-1").unwrap(), None);
    assert_eq!(read("0").unwrap(), None);
    assert_eq!(read("10").unwrap(), Some(10));
    for size in ["abc", "-2", "1.5", "99999999999999999999"] {
        assert!(
            read(size)
                .unwrap_err()
                .message()
                .starts_with(&format!("The input PageSize {size} is invalid.")),
            "{size}"
        );
    }
}

#[test]
fn the_largest_continuation_a_client_takes_is_given_in_kib() {
    let headers = [
        ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "1"),
        ("x-ms-continuation", "abc"),
    ];
    let page = with(&headers, |headers| headers.page()).unwrap();
    assert_eq!(
        (page.continuation_bytes_max, page.continuation.as_deref()),
        (Some(1024), Some("abc"))
    );
    refused(
        &[("x-ms-documentdb-responsecontinuationtokenlimitinkb", "much")],
        |headers| headers.page(),
    );
}

#[test]
fn a_change_feed_starts_after_a_tag_before_it_starts_at_a_time() {
    let date = ("if-modified-since", "Thu, 27 Apr 2017 00:51:12 GMT");
    let start = |headers: &[(&str, &str)]| with(headers, |headers| headers.feed_start());
    assert_eq!(start(&[]).unwrap(), FeedStart::Beginning);
    assert_eq!(start(&[date]).unwrap(), FeedStart::Time(1_493_254_272));
    assert_eq!(start(&[date, ("if-none-match", "*")]).unwrap(), FeedStart::Now);
    assert_eq!(
        start(&[date, ("if-none-match", "\"17\"")]).unwrap(),
        FeedStart::After("\"17\"".into())
    );
    refused(&[("if-modified-since", "yesterday")], |headers| headers.feed_start());
}

#[test]
fn the_change_feed_mode_is_read_in_any_spelling() {
    let read = |mode| with(&[("A-IM", mode)], |headers| headers.feed_mode());
    for mode in ["Incremental Feed", "Incremental feed", "incremental feed"] {
        assert_eq!(read(mode).unwrap(), Some(FeedMode::LatestVersions), "{mode}");
    }
    assert_eq!(read("Full-Fidelity Feed").unwrap(), Some(FeedMode::AllVersions));
    assert!(read("Delta").is_err());
}

#[test]
fn writes_are_conditioned_by_the_version_they_expect() {
    let both = [("if-match", "\"a\""), ("if-none-match", "\"b\"")];
    assert_eq!(
        with(&both, |headers| headers.write_precondition()).unwrap(),
        Precondition::IfMatch("\"a\"".into())
    );
    assert_eq!(
        with(&both, |headers| headers.read_precondition()).unwrap(),
        Precondition::IfNoneMatch("\"b\"".into())
    );
    assert_eq!(
        with(&both[1..], |headers| headers.write_precondition()).unwrap(),
        Precondition::IfNoneMatch("\"b\"".into())
    );
    assert_eq!(
        with(&[], |headers| headers.write_precondition()).unwrap(),
        Precondition::None
    );
}

#[test]
fn only_the_wish_for_a_minimal_answer_leaves_the_body_out() {
    let read = |prefer| with(&[("prefer", prefer)], |headers| headers.prefers_minimal()).unwrap();
    assert!(read("return=minimal"));
    assert!(read("respond-async, Return=Minimal"));
    assert!(!read("return=representation"));
    assert!(!read(""));
}

#[test]
fn an_offer_cannot_be_migrated_both_ways() {
    let both = [
        ("x-ms-cosmos-migrate-offer-to-autopilot", "true"),
        ("x-ms-cosmos-migrate-offer-to-manual-throughput", "true"),
    ];
    refused(&both, |headers| headers.migration());
    assert_eq!(
        with(&both[..1], |headers| headers.migration()).unwrap(),
        Migration::ToAutoscale
    );
    assert_eq!(
        with(&both[1..], |headers| headers.migration()).unwrap(),
        Migration::ToManual
    );
}

#[test]
fn the_features_of_a_client_are_a_list_with_or_without_blanks() {
    let read = |list| {
        with(&[("x-ms-cosmos-supported-query-features", list)], |headers| {
            headers.query_features()
        })
        .unwrap()
    };
    assert_eq!(read("Aggregate, Distinct,Top ,"), ["Aggregate", "Distinct", "Top"]);
}

proptest! {
    #[test]
    fn garbage_in_headers_never_panics(value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let all = [
            name::ACTIVITY_ID, name::CONSISTENCY_LEVEL, name::READ_CONSISTENCY_STRATEGY, name::INTENDED_CONTAINER,
            name::SESSION_TOKEN, name::PARTITION_KEY, name::PARTITION_RANGE_ID, name::START_EPK, name::END_EPK,
            name::READ_KEY_TYPE, name::PREFER, name::MAX_ITEM_COUNT, name::CONTINUATION, name::CONTINUATION_LIMIT_KIB,
            name::A_IM, name::IF_MATCH, name::IF_NONE_MATCH, name::IF_MODIFIED_SINCE, name::OFFER_THROUGHPUT,
            name::OFFER_AUTOPILOT, name::SUPPORTED_QUERY_FEATURES, name::CONTENT_TYPE,
        ];
        for name in all {
            let mut map = HeaderMap::new();
            map.insert(name, value.clone());
            let headers = Headers::of(&map);
            let _ = (headers.activity_id(), headers.options(Consistency::Session), headers.partition_key());
            let _ = (headers.feed_target(), headers.page(), headers.feed_start(), headers.write_precondition());
            let _ = (headers.throughput(), headers.migration(), headers.query_features(), headers.feed_mode());
            let _ = (headers.is_query(), headers.prefers_minimal());
        }
    }

    #[test]
    fn text_in_headers_never_panics(value in "[!-~]{0,60}") {
        let mut map = HeaderMap::new();
        for name in [name::SESSION_TOKEN, name::PARTITION_KEY, name::PARTITION_RANGE_ID, name::IF_MODIFIED_SINCE] {
            map.insert(name, HeaderValue::from_str(&value).unwrap());
        }
        let headers = Headers::of(&map);
        let _ = (headers.options(Consistency::Session), headers.feed_target(), headers.feed_start());
    }
}
