use super::*;

fn value(text: &str) -> Value {
    json::parse_value(text.as_bytes()).unwrap()
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.status().code, 400);
    error.message().to_owned()
}

const AUTOSCALE: Throughput = Throughput::Autoscale {
    max: 4000,
    increment_percent: None,
};

#[test]
fn the_create_headers_give_either_mode_or_none() {
    assert_eq!(Throughput::from_headers(None, None).unwrap(), None);
    assert_eq!(
        Throughput::from_headers(Some("400"), None).unwrap(),
        Some(Throughput::Manual(400))
    );
    let settings = r#"{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}"#;
    let throughput = Throughput::from_headers(None, Some(settings)).unwrap();
    assert_eq!(
        throughput,
        Some(Throughput::Autoscale {
            max: 4000,
            increment_percent: Some(10)
        })
    );
    message(Throughput::from_headers(Some("400"), Some(settings)));
}

#[test]
fn throughput_outside_the_limits_or_steps_is_refused() {
    for text in ["399", "0", "-400", "450", "1000100", "99999999999", "many", ""] {
        message(Throughput::from_headers(Some(text), None));
    }
    for text in [
        r#"{"maxThroughput":900}"#,
        r#"{"maxThroughput":1500}"#,
        "{}",
        "[]",
        "x",
        r#"{"maxThroughput":"4000"}"#,
    ] {
        message(Throughput::from_headers(None, Some(text)));
    }
    assert_eq!(
        message(Throughput::from_headers(None, Some(r#"{"maxThroughput":-200}"#))),
        "Requested throughput -200 is less than required minimum throughput 1000."
    );
    assert_eq!(
        message(Throughput::manual(405)),
        "The offer should have valid throughput values between 400 and 1000000 inclusive in increments of 100."
    );
}

#[test]
fn an_offer_shows_what_every_client_looks_for() {
    let database = ResourceId::database(1);
    let offer = Offer {
        rid: ResourceId::offer(1),
        target_rid: database.clone(),
        target_self: format!("dbs/{database}/"),
        etag: Etag([0; 16]),
        ts: Timestamp(1_700_000_000_999),
        throughput: Throughput::Autoscale {
            max: 4000,
            increment_percent: Some(5),
        },
    };
    let shown = offer.to_value();
    assert_eq!(shown.get("id"), shown.get("_rid"));
    assert_eq!(
        shown.get("resource").unwrap().as_str(),
        Some(format!("dbs/{database}/").as_str())
    );
    assert_eq!(
        shown.get("offerResourceId").unwrap().as_str(),
        Some(database.to_string().as_str())
    );
    assert_eq!(shown.get("_ts"), Some(&Value::from(1_700_000_000)));
    assert_eq!(
        shown.get("content").unwrap().to_text(),
        r#"{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":5}}}}"#
    );
    assert_eq!(
        offer.throughput.replace(&shown, Migration::None).unwrap(),
        offer.throughput
    );
}

#[test]
fn a_replace_stays_in_its_mode_unless_a_migration_is_asked_for() {
    let manual = value(r#"{"content":{"offerThroughput":800}}"#);
    let autoscale = value(r#"{"content":{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":6000}}}"#);
    assert_eq!(
        Throughput::Manual(400).replace(&manual, Migration::None).unwrap(),
        Throughput::Manual(800)
    );
    let six = Throughput::Autoscale {
        max: 6000,
        increment_percent: None,
    };
    assert_eq!(AUTOSCALE.replace(&autoscale, Migration::None).unwrap(), six);
    message(Throughput::Manual(400).replace(&autoscale, Migration::None));
    message(AUTOSCALE.replace(&manual, Migration::None));
    message(AUTOSCALE.replace(&value("{}"), Migration::None));
    assert_eq!(
        Throughput::Manual(400)
            .replace(&autoscale, Migration::ToAutoscale)
            .unwrap(),
        six
    );
    assert_eq!(
        Throughput::Manual(1300)
            .replace(&manual, Migration::ToAutoscale)
            .unwrap(),
        Throughput::Autoscale {
            max: 2000,
            increment_percent: None
        }
    );
    assert_eq!(
        AUTOSCALE.replace(&manual, Migration::ToManual).unwrap(),
        Throughput::Manual(800)
    );
    assert_eq!(
        AUTOSCALE.replace(&autoscale, Migration::ToManual).unwrap(),
        Throughput::Manual(4000)
    );
}

#[test]
fn every_ten_thousand_units_need_a_partition() {
    for (units, n) in [(400, 1), (10_000, 1), (10_100, 2), (100_000, 10)] {
        assert_eq!(Throughput::Manual(units).n_partitions(), n);
    }
    assert_eq!(
        Throughput::Autoscale {
            max: 21_000,
            increment_percent: None
        }
        .n_partitions(),
        3
    );
}
