//! `orrery platform`: one process per region, on accounts that other processes serve, as it would run on Azure.

use serde_json::json;

use crate::service::{ask, json_of, token};
use crate::support::{Server, fail, succeed, until};

const REGIONS: [&str; 2] = ["West US", "North Europe"];

/// Two accounts of two regions, and the file that tells the services of them.
fn accounts(directory: &std::path::Path) -> (Server, String) {
    let settings = directory.join("accounts.toml");
    std::fs::write(&settings, succeed(&["topology", "generate", "--regions", "2"])).unwrap();
    let server = Server::start(&["--config", settings.to_str().unwrap()]);
    let mut text = String::new();
    for account in server.ready["accounts"].as_array().unwrap() {
        let id = account["id"].as_str().unwrap();
        let regions: Vec<&str> = account["regions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|region| region["name"].as_str().unwrap())
            .collect();
        text += &format!(
            "[[accounts]]\nname = {id:?}\ntag = {:?}\nendpoint = {}\nkey = {}\nwrite-region = {:?}\nread-regions = {:?}\n",
            id.rsplit('-').next().unwrap(),
            account["endpoint"],
            account["key"],
            regions[0],
            &regions[1..],
        );
    }
    let file = directory.join("platform.toml");
    std::fs::write(&file, text).unwrap();
    (server, file.to_str().unwrap().to_owned())
}

fn service(file: &str, region: &str) -> Server {
    let flags = ["platform", "--accounts", file, "--region", region, "--port", "0"];
    Server::spawn(&[&flags[..], &["--development", "--instance", "test"]].concat())
}

#[test]
fn a_service_per_region_on_accounts_elsewhere_publishes_here_and_notifies_there() {
    let directory = tempfile::tempdir().unwrap();
    let (_accounts, file) = accounts(directory.path());
    let services = REGIONS.map(|region| service(&file, region));
    let [west, north] = services
        .each_ref()
        .map(|service| service.ready["platform"]["url"].as_str().unwrap().to_owned());
    assert!(until(
        || ask(&west, "GET", "/readyz", "", None).0 == 200 && ask(&north, "GET", "/readyz", "", None).0 == 200
    ));
    // A token is good in every region.
    let eva = token(&west, "eva");
    let filter = json!({"filter": "author:ann"});
    json_of(&north, "POST", "/v1/subscriptions", &eva, Some(&filter));
    let draft = json!({"category": "sports", "tags": [], "title": "Snow", "body": "It snows."});
    let article = json_of(&west, "POST", "/v1/articles", &token(&north, "ann"), Some(&draft));
    assert_eq!(article["account"], "usa");
    assert!(until(|| {
        let feed = json_of(&north, "GET", "/v1/notifications", &eva, None);
        feed["items"][0]["articleId"] == article["id"]
    }));
    // There is no world to move: the accounts are somebody else's.
    assert_eq!(ask(&west, "GET", "/v1/world", "", None).0, 404);
    assert_eq!(ask(&west, "GET", "/", "", None).0, 200);
    for service in services {
        let (status, _) = service.terminate();
        assert!(status.success());
    }
}

#[test]
fn what_makes_no_sense_or_is_not_safe_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let entry = |endpoint: &str| {
        format!(
            "[[accounts]]\nname = \"contentpubdatabase-europe\"\ntag = \"europe\"\nendpoint = \"{endpoint}\"\n\
             key = \"c2VjcmV0\"\nwrite-region = \"North Europe\"\n"
        )
    };
    let good = written("good.toml", &entry("http://localhost:1/"));
    // As the original spelled it.
    let typo = written(
        "typo.toml",
        &entry("https://contentpubdatabase-europ.documents.azure.com/"),
    );
    let broken = written("broken.toml", "[[accounts]]\nkey = \"c2VjcmV0\nname");
    let (north, local) = ("North Europe", "--development");
    for (flags, expected) in [
        (vec![typo.as_str(), north, local], "another account's name"),
        (vec![&broken, north, local], "cannot understand"),
        (vec!["/nowhere", north, local], "cannot read"),
        (vec![&good, "Mars", local], "no account takes writes in `Mars`"),
        (vec![&good, north], "ORRERY_TOKEN_SECRET"),
        (vec![&good, north, local, "--listen", "0.0.0.0"], "--allow-plain-http"),
        (
            vec![&good, north, local, "--listen", "0.0.0.0", "--allow-plain-http"],
            "loopback only",
        ),
    ] {
        let mut all = vec!["platform", "--port", "0", "--accounts", flags[0], "--region", flags[1]];
        all.extend(&flags[2..]);
        let said = fail(&all);
        assert!(said.contains(expected) && !said.contains("c2VjcmV0"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
