//! `orrery up`: the publishing platform and its world, as a browser would use them.

use serde_json::json;

use crate::service::{Call, REGIONS, ask, json_of, send, token, up, url};
use crate::support::{fail, until};

fn publish(url: &str, title: &str) -> String {
    let draft = json!({"category": "sports", "tags": [], "title": title, "body": "It snows."});
    let article = json_of(url, "POST", "/v1/articles", &token(url, "ann"), Some(&draft));
    article["id"].as_str().unwrap().to_owned()
}

/// Does the region itself have the article? A list asks no other.
fn has(url: &str, id: &str) -> bool {
    let page = json_of(url, "GET", "/v1/articles?author=ann", "", None);
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|article| article["id"] == id)
}

fn cut(url: &str, from: &str, to: &str, cut: bool) {
    json_of(
        url,
        "PUT",
        "/v1/world/links",
        "",
        Some(&json!({"from": from, "to": to, "cut": cut})),
    );
}

#[test]
fn an_article_is_told_to_subscribers_elsewhere_and_a_cut_link_holds_it_back_until_it_heals() {
    let server = up(&["--memory"]);
    let [west, north, asia] = REGIONS.map(|region| url(&server, region));
    let reader = token(&asia, "aki");
    json_of(
        &asia,
        "POST",
        "/v1/subscriptions",
        &reader,
        Some(&json!({"filter": "author:ann"})),
    );
    let id = publish(&west, "Snow");
    assert!(until(|| has(&north, &id) && has(&asia, &id)));
    assert!(until(|| {
        let feed = json_of(&asia, "GET", "/v1/notifications", &reader, None);
        feed["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|told| told["articleId"] == id.as_str())
    }));

    cut(&west, "West US", "Southeast Asia", true);
    let held = publish(&west, "Held back");
    assert!(until(|| has(&north, &held)), "other links work");
    assert!(!has(&asia, &held), "nothing crosses a link that is cut");
    cut(&asia, "West US", "Southeast Asia", false);
    assert!(until(|| has(&asia, &held)));
}

#[test]
fn the_world_shows_and_moves_accounts_and_regions() {
    let server = up(&["--memory"]);
    let [west, north, _] = REGIONS.map(|region| url(&server, region));
    let world = json_of(&north, "GET", "/v1/world", "", None);
    assert_eq!(world["accounts"].as_array().unwrap().len(), 3);
    assert_eq!(world["links"].as_array().unwrap().len(), 6);
    let moved = json_of(
        &north,
        "POST",
        "/v1/world/accounts/usa/failover",
        "",
        Some(&json!({"region": "North Europe"})),
    );
    let writer = moved["regions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|region| region["role"] == "write");
    assert_eq!(writer.unwrap()["name"], "North Europe");

    let stopped = json_of(&north, "POST", "/v1/world/regions/West%20US/stop", "", None);
    assert_eq!(stopped["state"], "stopped");
    assert_eq!(ask(&west, "GET", "/v1/regions", "", None).0, 503);
    json_of(&west, "POST", "/v1/world/regions/West%20US/start", "", None);
    assert_eq!(ask(&west, "GET", "/v1/regions", "", None).0, 200);

    for (method, path, body, status) in [
        ("PUT", "/v1/world/links", json!({"from": "Mars", "to": "West US"}), 404),
        (
            "PUT",
            "/v1/world/links",
            json!({"from": "West US", "to": "North Europe", "latencyMs": -1}),
            400,
        ),
        ("PUT", "/v1/world/links", json!({"unknown": 1}), 400),
        (
            "POST",
            "/v1/world/accounts/mars/failover",
            json!({"region": "West US"}),
            404,
        ),
        ("POST", "/v1/world/regions/%ff/stop", json!({}), 400),
        ("DELETE", "/v1/world", json!({}), 405),
    ] {
        assert_eq!(
            ask(&west, method, path, "", Some(&body)).0,
            status,
            "{method} {path} {body}"
        );
    }
}

/// The region that takes an account's writes.
fn writer(url: &str, tag: &str) -> String {
    let world = json_of(url, "GET", "/v1/world", "", None);
    let accounts = world["accounts"].as_array().unwrap();
    let account = accounts.iter().find(|account| account["tag"] == tag).unwrap();
    let mut regions = account["regions"].as_array().unwrap().iter();
    let writer = regions.find(|region| region["role"] == "write").unwrap();
    writer["name"].as_str().unwrap().to_owned()
}

#[test]
fn an_account_that_changes_have_waited_for_too_long_is_failed_over_and_its_fan_out_with_it() {
    let server = up(&["--memory", "--outage-failover-after-ms", "1000"]);
    let [_, north, asia] = REGIONS.map(|region| url(&server, region));
    let reader = token(&asia, "aki");
    let follow = json!({"filter": "author:ann"});
    json_of(&asia, "POST", "/v1/subscriptions", &reader, Some(&follow));
    let id = publish(&asia, "Snow");
    assert!(until(|| has(&north, &id)));
    let path = format!("/v1/articles/{id}");
    let etag = json_of(&north, "GET", &path, "", None)["etag"]
        .as_str()
        .unwrap()
        .to_owned();
    json_of(&north, "POST", "/v1/world/regions/Southeast%20Asia/stop", "", None);
    assert_eq!(writer(&north, "asia"), "Southeast Asia", "nothing waits yet");

    let draft = json!({"category": "sports", "tags": [], "title": "Ice", "body": "It froze."});
    let change = Call {
        method: "PUT",
        path: &path,
        token: &token(&north, "ann"),
        headers: &format!("if-match: {etag}\r\n"),
        body: Some(&draft),
    };
    assert_eq!(send(&north, change).unwrap().0, 202);
    assert!(until(|| writer(&north, "asia") == "North Europe"));
    assert!(until(|| json_of(&north, "GET", &path, "", None)["title"] == "Ice"));
    // Subscribers of the account are served from there.
    let next = publish(&north, "Hail");
    assert!(until(|| {
        let feed = json_of(&north, "GET", "/v1/notifications", &reader, None);
        let items = feed["items"].as_array().unwrap();
        items.iter().any(|told| told["articleId"] == next.as_str())
    }));
    assert!(until(|| {
        let world = json_of(&north, "GET", "/v1/world", "", None);
        let mut roles = world["fanout"].as_array().unwrap().iter();
        roles.any(|role| role["account"] == "asia" && role["region"] == "North Europe")
    }));
}

#[test]
fn what_was_published_is_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let kept = ["--data-dir", directory.path().to_str().unwrap()];
    let server = up(&kept);
    let id = publish(&url(&server, "West US"), "Snow");
    // Dropping it kills it.
    drop(server);
    let server = up(&kept);
    let asia = url(&server, "Southeast Asia");
    assert!(until(|| has(&asia, &id)));
    let (status, page) = ask(&asia, "GET", "/", "", None);
    assert!(status == 200 && page.contains("<!doctype html>"));
    let (status, _) = server.terminate();
    assert!(status.success());
}

#[test]
fn regions_that_make_no_sense_are_refused_in_one_line() {
    for regions in ["West US,west-us", "1000", ","] {
        let said = fail(&["up", "--memory", "--port", "0", "--regions", regions]);
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
