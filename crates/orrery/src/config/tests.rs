//! Where settings come from, and which are refused.

use super::*;

fn config(flags: ServerFlags, environment: &[(&str, &str)]) -> Result<ServerConfig> {
    let environment = environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ServerConfig::new(&Raw::gather(&flags, environment)?)
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.toml");
    std::fs::write(&file, "port = 1\npartitions = 2\nconsistency = \"Strong\"\n").unwrap();
    let flags = ServerFlags {
        config: Some(file),
        port: Some("3".into()),
        ..ServerFlags::default()
    };
    let config = config(flags, &[("ORRERY_PORT", "4"), ("ORRERY_PARTITIONS", "5")]).unwrap();
    let account = &config.accounts[0];
    assert_eq!(
        (account.port, config.partitions, account.consistency),
        (3, 5, orrery_node::api::Consistency::Strong)
    );
}

#[test]
fn an_unknown_setting_is_an_error_that_names_it() {
    let error = config(ServerFlags::default(), &[("ORRERY_PROT", "1")]).unwrap_err();
    assert!(
        error.to_string().contains("ORRERY_PROT") && error.to_string().contains("prot"),
        "{error}"
    );
}

#[test]
fn beyond_loopback_the_development_key_is_refused_and_plain_http_is_off() {
    let flags = |key: Option<&str>| ServerFlags {
        listen: Some("0.0.0.0".into()),
        key: key.map(str::to_owned),
        ..ServerFlags::default()
    };
    assert!(config(flags(None), &[]).unwrap_err().to_string().contains("--key"));
    let own = STANDARD.encode([7; 64]);
    assert!(!config(flags(Some(&own)), &[]).unwrap().plain_http);
    assert!(
        config(flags(Some(&own)), &[("ORRERY_ALLOW_PLAIN_HTTP", "true")])
            .unwrap()
            .plain_http
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (name, value) in [
        ("PORT", "99999"),
        ("PARTITIONS", "0"),
        ("KEY", "x"),
        ("CONSISTENCY", "best"),
        ("PROFILE", "x"),
        ("REGIONS", ""),
        ("REGIONS", "West US,westus"),
        ("OUTAGE_ALERT_AFTER_MS", "soon"),
        ("OUTAGE_FAILOVER_AFTER_MS", "-1"),
    ] {
        let result = config(ServerFlags::default(), &[(&format!("ORRERY_{name}"), value)]);
        assert!(result.is_err(), "{name}={value}");
    }
}

fn from_file(text: &str, extra: ServerFlags) -> Result<ServerConfig> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.toml");
    std::fs::write(&file, text).unwrap();
    let flags = ServerFlags {
        config: Some(file),
        ..extra
    };
    config(flags, &[])
}

const TWO_ACCOUNTS: &str = r#"
consistency = "Eventual"
port = 9000
[[accounts]]
id = "usa"
regions = ["West US", "North Europe"]
[[accounts]]
id = "europe"
regions = ["North Europe", "West US"]
consistency = "Strong"
key = "bXkgb3duIHNlY3JldCBrZXksIGxvbmcgZW5vdWdo"
[[links]]
from = "West US"
to = "northeurope"
latency-ms = 70
distribution = "pareto"
queue-bytes = 1000000
"#;

#[test]
fn accounts_of_a_file_take_what_they_leave_out_from_the_plain_settings() {
    let config = from_file(TWO_ACCOUNTS, ServerFlags::default()).unwrap();
    let [usa, europe] = config.accounts.as_slice() else {
        panic!("two accounts: {:?}", config.accounts);
    };
    assert_eq!((usa.id.as_str(), usa.port, europe.port), ("usa", 9000, 9010));
    assert_eq!(usa.consistency, orrery_node::api::Consistency::Eventual);
    assert_eq!(europe.consistency, orrery_node::api::Consistency::Strong);
    assert_eq!(europe.regions, ["North Europe", "West US"]);
    assert_ne!(usa.key, europe.key);
    let ends: Vec<_> = config.links.iter().map(|link| link.from.as_str()).collect();
    assert_eq!(ends, ["West US", "northeurope"], "there and back");
    let settings = &config.links[0].settings;
    assert_eq!(
        (settings.distribution.name(), settings.queue_bytes),
        ("pareto", Some(1_000_000))
    );
}

#[test]
fn a_port_on_the_command_line_counts_for_all_accounts() {
    let flags = ServerFlags {
        port: Some("0".into()),
        ..ServerFlags::default()
    };
    let text = TWO_ACCOUNTS.replace("id = \"usa\"", "id = \"usa\"\nport = 8100");
    let config = from_file(&text, flags).unwrap();
    assert!(config.accounts.iter().all(|account| account.port == 0));
    let config = from_file(&text, ServerFlags::default()).unwrap();
    assert_eq!((config.accounts[0].port, config.accounts[1].port), (8100, 8110));
}

#[test]
fn accounts_and_links_that_make_no_sense_are_refused() {
    for (text, with, word) in [
        ("id = \"usa\"", "id = \"europe\"", "twice"),
        ("id = \"usa\"", "id = \"Not A Name\"", "account's name"),
        ("id = \"usa\"", "id = \"usa\"\nregion = 1", "region"),
        ("to = \"northeurope\"", "to = \"Nowhere\"", "Nowhere"),
        ("latency-ms = 70", "latency-ms = -1", "milliseconds"),
        ("port = 9000", "account = \"orrery\"", "account"),
    ] {
        let error = from_file(&TWO_ACCOUNTS.replace(text, with), ServerFlags::default()).unwrap_err();
        assert!(format!("{error:#}").contains(word), "{with}: {error:#}");
    }
}

fn bounded(extra: &str) -> Result<ServerConfig> {
    let text = format!("consistency = \"BoundedStaleness\"\nregions = [\"West US\", \"North Europe\"]\n{extra}");
    from_file(&text, ServerFlags::default())
}

#[test]
fn bounds_of_staleness_are_the_accounts_or_else_the_plain_settings() {
    let chosen = |config: &ServerConfig, index: usize| {
        let bounds = config.accounts[index].staleness.bounds();
        (bounds.transactions, bounds.age.as_secs())
    };
    assert_eq!(chosen(&bounded("").unwrap(), 0), (100_000, 300), "the least there is");
    let config = bounded("max-staleness-prefix = 250000\nmax-staleness-interval-s = 600").unwrap();
    assert_eq!(chosen(&config, 0), (250_000, 600));
    let accounts = TWO_ACCOUNTS
        .replace("Eventual", "BoundedStaleness")
        .replace("port = 9000", "port = 9000\nmax-staleness-interval-s = 900")
        .replace("id = \"usa\"", "id = \"usa\"\nmax-staleness-prefix = 200000");
    let config = from_file(&accounts, ServerFlags::default()).unwrap();
    assert_eq!(chosen(&config, 0), (200_000, 900));
    assert_eq!(
        config.accounts[1].staleness,
        Default::default(),
        "a strong account has none"
    );
}

#[test]
fn bounds_of_staleness_that_no_account_may_have_are_refused() {
    for (extra, word) in [
        ("max-staleness-prefix = 99999", "at least 100000 transactions"),
        ("max-staleness-interval-s = 299", "300 seconds"),
        (
            "max-staleness-prefix = 0\ndev-allow-tight-bounds = true",
            "between 1 and",
        ),
        ("max-staleness-interval-s = 86401", "86,400"),
        (
            "max-staleness-interval-s = 4\ndev-allow-tight-bounds = true",
            "between 5 and",
        ),
        ("max-staleness-prefix = \"many\"", "not a valid max-staleness-prefix"),
        ("dev-allow-tight-bounds = true\nprofile = \"production\"", "production"),
    ] {
        let error = bounded(extra).unwrap_err();
        assert!(format!("{error:#}").contains(word), "{extra}: {error:#}");
    }
    let tight = bounded("max-staleness-prefix = 1\nmax-staleness-interval-s = 5\ndev-allow-tight-bounds = true");
    assert_eq!(tight.unwrap().accounts[0].staleness.bounds().transactions, 1);
    let idle = from_file("max-staleness-prefix = 100000", ServerFlags::default()).unwrap_err();
    assert!(format!("{idle:#}").contains("Session"), "{idle:#}");
    let own = TWO_ACCOUNTS.replace("id = \"usa\"", "id = \"usa\"\nmax-staleness-prefix = 200000");
    assert!(
        from_file(&own, ServerFlags::default()).is_err(),
        "an eventual account has no bounds"
    );
}

#[test]
fn changes_wait_for_an_account_unless_a_time_is_given_after_which_it_is_failed_over() {
    let outage = |text: &str| from_file(text, ServerFlags::default()).unwrap().outage;
    let waiting = OutageConfig {
        alert_after: Duration::from_secs(15 * 60),
        failover_after: None,
    };
    assert_eq!(outage(TWO_ACCOUNTS), waiting);
    let eager = outage(&format!("outage-failover-after-ms = 30000\n{TWO_ACCOUNTS}"));
    assert_eq!(eager.failover_after, Some(Duration::from_secs(30)));
    let told = outage(&format!("outage-alert-after-ms = 1000\n{TWO_ACCOUNTS}"));
    assert_eq!((told.alert_after, told.failover_after), (Duration::from_secs(1), None));
}
