//! Every field of every route with values that nobody should send: each is refused clearly, and nothing is stored.
//!
//! The table names the routes; a test holds it to the list of routes that exist. What looks dangerous but is only text, such
//! as markup in a title, is stored and given back as it is; pages show it as text, which their own tests check.

use http::StatusCode;
use orrery_platform::route;
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::world::World;

/// A request whose one part is replaced by each of the hostile values.
struct Case {
    method: &'static str,
    /// As in the list of routes.
    route: &'static str,
    /// With the place of the value, percent-encoded there.
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    /// The body's members, one of them in the place of the value.
    body: Option<fn(Value) -> Value>,
    values: fn() -> Vec<Value>,
}

/// What a name may not be: wrong types, too much, too little, characters that names do not have.
fn names() -> Vec<Value> {
    let mut values = texts();
    values.extend([
        json!(""),
        json!("   "),
        json!("a#b"),
        json!("line\nbreak"),
        json!("x".repeat(257)),
    ]);
    values
}

/// What no text may be.
fn texts() -> Vec<Value> {
    let mut values = not_texts();
    values.extend([
        json!("nul\u{0}"),
        json!("escape\u{1b}[2J"),
        json!("delete\u{7f}"),
        json!("\u{85}"),
    ]);
    values
}

fn not_texts() -> Vec<Value> {
    let deep = (0..100).fold(json!("x"), |inner, _| json!([inner]));
    vec![
        json!(null),
        json!(7),
        json!(true),
        json!(["a"]),
        json!({"a": "b"}),
        deep,
    ]
}

fn titles() -> Vec<Value> {
    let mut values = texts();
    values.extend([json!(""), json!(" "), json!("x".repeat(1025)), json!("line\nbreak")]);
    values
}

fn bodies() -> Vec<Value> {
    let mut values = texts();
    values.push(json!("x".repeat((512 << 10) + 1)));
    values
}

fn reviews() -> Vec<Value> {
    let mut values = texts();
    values.push(json!("x".repeat((16 << 10) + 1)));
    values
}

fn tags() -> Vec<Value> {
    let lists = names().into_iter().map(|name| json!([name]));
    let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    lists
        .chain([json!("ski"), json!(null), json!({}), json!(many)])
        .collect()
}

fn ratings() -> Vec<Value> {
    vec![
        json!(null),
        json!(0),
        json!(6),
        json!(-1),
        json!(256),
        json!(2.5),
        json!(1e300),
        json!("5"),
        json!([5]),
    ]
}

fn counts() -> Vec<Value> {
    vec![
        json!(null),
        json!(101),
        json!(-1),
        json!(0.5),
        json!(u64::MAX),
        json!("10"),
        json!({}),
    ]
}

/// Names in paths: what is no text, what is too long, what would lead elsewhere.
fn ids() -> Vec<Value> {
    let mut values = paths();
    values.extend([
        json!("a/b"),
        json!("../regions"),
        json!("a\\b"),
        json!("a?b"),
        json!("a#b"),
    ]);
    values
}

fn paths() -> Vec<Value> {
    vec![
        json!("\u{0}"),
        json!("a\r\nx: y"),
        json!("x".repeat(300)),
        json!("\u{1b}"),
    ]
}

fn in_parameters() -> Vec<Value> {
    let mut values = paths();
    values.extend([json!(""), json!("a#b"), json!(" ")]);
    values
}

fn filters() -> Vec<Value> {
    let mut values = paths();
    values.extend([json!("author:"), json!("tag:a#b"), json!(" ")]);
    values
}

fn page_sizes() -> Vec<Value> {
    ["", "0", "-1", "101", "1e2", "x", "99999999999999999999", "1 OR 1=1"]
        .map(Value::from)
        .to_vec()
}

fn tokens() -> Vec<Value> {
    let broken = ["", "x", "eyJ2IjoxfQ", "../..", "a\r\nb", "\u{0}"].map(Value::from);
    broken.into_iter().chain([json!("A".repeat(20_000))]).collect()
}

fn session_tokens() -> Vec<Value> {
    vec![
        json!("0:-1#1\r\nx-ms-version: 1"),
        json!("\u{0}"),
        json!("blank blank"),
        json!("A".repeat(20_000)),
    ]
}

fn switches() -> Vec<Value> {
    ["", "1", "yes", "TRUE", "true;"].map(Value::from).to_vec()
}

/// Values of a header; those with characters that headers cannot have never get here.
fn header_values() -> Vec<Value> {
    vec![json!(""), json!("x".repeat(257)), json!("\u{ff}")]
}

const fn case(method: &'static str, route: &'static str, path: &'static str, values: fn() -> Vec<Value>) -> Case {
    Case {
        method,
        route,
        path,
        headers: &[],
        body: None,
        values,
    }
}

const fn with_body(case: Case, body: fn(Value) -> Value) -> Case {
    Case {
        body: Some(body),
        ..case
    }
}

const fn with_headers(case: Case, headers: &'static [(&'static str, &'static str)]) -> Case {
    Case { headers, ..case }
}

fn draft(name: &str, value: Value) -> Value {
    let mut draft = json!({"category": "sports", "tags": [], "title": "Snow", "body": "It snows."});
    draft[name] = value;
    draft
}

const IF_MATCH: &[(&str, &str)] = &[("if-match", "\"0\"")];
const ARTICLE: &str = "/v1/articles/usa.01HF7YAT000W3GE1R70W3GE1R7";

fn articles() -> Vec<Case> {
    let publish = |values| case("POST", "/v1/articles", "/v1/articles", values);
    let update = |values| with_headers(case("PUT", "/v1/articles/{}", ARTICLE, values), IF_MATCH);
    vec![
        with_body(publish(names), |value| draft("category", value)),
        with_body(publish(tags), |value| draft("tags", value)),
        with_body(publish(titles), |value| draft("title", value)),
        with_body(publish(bodies), |value| draft("body", value)),
        with_body(publish(names), |value| draft("unknown", value)),
        with_body(publish(not_texts), |value| value),
        with_headers(
            with_body(publish(header_values), |_| draft("title", json!("Snow"))),
            &[("idempotency-key", "{}")],
        ),
        with_body(update(names), |value| draft("category", value)),
        with_body(update(tags), |value| draft("tags", value)),
        with_body(update(titles), |value| draft("title", value)),
        with_body(update(bodies), |value| draft("body", value)),
        with_headers(
            with_body(update(header_values), |_| draft("title", json!("Snow"))),
            &[("if-match", "{}")],
        ),
        with_headers(
            with_body(case("PUT", "/v1/articles/{}", "/v1/articles/{}", ids), |_| {
                draft("title", json!("Snow"))
            }),
            IF_MATCH,
        ),
        case("DELETE", "/v1/articles/{}", "/v1/articles/{}", ids),
        with_headers(
            case("DELETE", "/v1/articles/{}", ARTICLE, header_values),
            &[("if-match", "{}")],
        ),
        case("GET", "/v1/articles/{}", "/v1/articles/{}", ids),
        case("GET", "/v1/articles/{}", "/v1/articles/usa.x?token={}", session_tokens),
        case("GET", "/v1/articles", "/v1/articles?author={}", in_parameters),
        case("GET", "/v1/articles", "/v1/articles?category={}", in_parameters),
        case("GET", "/v1/articles", "/v1/articles?tag={}", in_parameters),
        case("GET", "/v1/articles", "/v1/articles?tag=a&pageSize={}", page_sizes),
        case("GET", "/v1/articles", "/v1/articles?tag=a&continuation={}", tokens),
        case("GET", "/v1/articles", "/v1/articles?tag=a&complete={}", switches),
    ]
}

fn reviews_and_feeds() -> Vec<Case> {
    let write = |values| case("PUT", "/v1/articles/{}/review", "/v1/articles/usa.x/review", values);
    let list = |path, values| case("GET", "/v1/articles/{}/reviews", path, values);
    let feed = |path, values| case("GET", "/v1/notifications", path, values);
    vec![
        with_body(write(ratings), |value| json!({"text": "Fine.", "rating": value})),
        with_body(write(reviews), |value| json!({"text": value, "rating": 4})),
        with_body(
            write(names),
            |value| json!({"text": "Fine.", "rating": 4, "user": value}),
        ),
        with_body(
            case("PUT", "/v1/articles/{}/review", "/v1/articles/{}/review", ids),
            |_| json!({"text": "Fine.", "rating": 4}),
        ),
        list("/v1/articles/{}/reviews", ids),
        list("/v1/articles/usa.x/reviews?pageSize={}", page_sizes),
        list("/v1/articles/usa.x/reviews?continuation={}", tokens),
        list("/v1/articles/usa.x/reviews?complete={}", switches),
        case("GET", "/v1/articles/{}/summary", "/v1/articles/{}/summary", ids),
        feed("/v1/notifications?pageSize={}", page_sizes),
        feed("/v1/notifications?continuation={}", tokens),
        feed("/v1/notifications?complete={}", switches),
        case("POST", "/v1/notifications/{}/read", "/v1/notifications/{}/read", ids),
    ]
}

fn subscriptions_and_users() -> Vec<Case> {
    let subscribe = |values| case("POST", "/v1/subscriptions", "/v1/subscriptions", values);
    let token = |values| case("POST", "/v1/dev/tokens", "/v1/dev/tokens", values);
    vec![
        with_body(subscribe(names), |value| json!({"filter": value})),
        with_body(
            subscribe(counts),
            |value| json!({"filter": "author:ann", "backfill": value}),
        ),
        with_body(subscribe(names), |value| json!({"filter": "author:ann", "user": value})),
        case("DELETE", "/v1/subscriptions/{}", "/v1/subscriptions/{}", filters),
        with_body(token(names), |value| json!({"user": value})),
        with_body(token(names), |value| json!({"user": "ann", "admin": value})),
    ]
}

/// Routes that take nothing from whoever asks but who it is.
const WITHOUT_FIELDS: [(&str, &str); 10] = [
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("get", "/v1/status"),
    ("get", "/v1/me"),
    ("get", "/v1/regions"),
    ("get", "/v1/subscriptions"),
    ("post", "/v1/subscriptions/migrate"),
    ("get", "/v1/notifications/stream"),
];

fn cases() -> Vec<Case> {
    let parts = [articles(), reviews_and_feeds(), subscriptions_and_users()];
    parts.into_iter().flatten().collect()
}

#[test]
fn the_table_knows_every_route() {
    let cases = cases();
    for (method, path) in route::all() {
        let is_listed = cases
            .iter()
            .any(|case| case.method.to_lowercase() == method && case.route == path);
        let has_none = WITHOUT_FIELDS.contains(&(method.as_str(), path));
        assert!(is_listed != has_none, "{method} {path}");
    }
}

/// Every byte but letters and digits encoded.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn send(client: &Client, case: &Case, value: &Value) -> Reply {
    let text = value.as_str().unwrap_or_default();
    let path = case.path.replace("{}", &encoded(text));
    let headers: Vec<(&str, &str)> = case
        .headers
        .iter()
        .map(|(name, given)| (*name, if *given == "{}" { text } else { *given }))
        .collect();
    let body = case.body.map(|body| body(value.clone()).to_string().into_bytes());
    client
        .send(case.method, &path, &headers, body.unwrap_or_default())
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_values_in_every_field_are_refused_and_nothing_is_stored() {
    let world = World::without_limits().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let before = world.n_documents().await;
    let mut wrong = Vec::new();
    for case in cases() {
        for value in (case.values)() {
            let reply = send(&ann, &case, &value).await;
            let is_clear = reply.status.is_client_error()
                && reply.body["error"]["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
                && !matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS);
            if !is_clear {
                let shown: String = value.to_string().chars().take(40).collect();
                wrong.push(format!(
                    "{} {} with {shown}: {} {}",
                    case.method, case.path, reply.status, reply.text
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(world.n_documents().await, before, "something was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_json_are_refused_by_every_route_that_takes_a_body_and_nothing_is_stored() {
    let world = World::without_limits().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let before = world.n_documents().await;
    let broken: [&[u8]; 9] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        br#"{"title":"\ud800"}"#,
        br#"{"title":"a","title":"b","category":"c","filter":"d","user":"e","rating":4,"rating":4}"#,
        &[b'['; 10_000],
        &[b' '; (1 << 20) + 1],
    ];
    for case in cases().iter().filter(|case| case.body.is_some()) {
        let path = case.path.replace("{}", "usa.x");
        for body in broken {
            let reply = ann.send(case.method, &path, IF_MATCH, body.to_vec()).await;
            assert!(
                reply.status.is_client_error(),
                "{} {path}: {} {}",
                case.method,
                reply.status,
                reply.text
            );
            assert!(!reply.code().is_empty(), "{path}: {}", reply.text);
        }
    }
    assert_eq!(world.n_documents().await, before, "something was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_in_a_row_are_no_body_for_any_route_and_nothing_is_stored() {
    let world = World::without_limits().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let before = world.n_documents().await;
    for case in cases().iter().filter(|case| case.body.is_some()) {
        let in_a_row = match case.route {
            "/v1/articles/{}/review" => json!(["Fine.", 4]),
            "/v1/subscriptions" => json!(["author:ann", 0]),
            "/v1/dev/tokens" => json!(["ann"]),
            "/v1/articles" | "/v1/articles/{}" => json!(["sports", [], "Snow", "It snows."]),
            other => panic!("{other} takes a body"),
        };
        let path = case.path.replace("{}", "usa.x");
        for text in [in_a_row.to_string(), format!(" \n{in_a_row}")] {
            let reply = ann.send(case.method, &path, IF_MATCH, text.into_bytes()).await;
            assert_eq!(
                (reply.status, reply.code()),
                (StatusCode::BAD_REQUEST, "invalid"),
                "{} {path}: {}",
                case.method,
                reply.text
            );
        }
    }
    assert_eq!(world.n_documents().await, before, "something was stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_ours_opens_nothing_and_markup_is_only_text() {
    let world = World::without_limits().await;
    let ann = Client::named(world.ports[0], "ann").await;
    let genuine = ann.token.clone().unwrap();
    let (payload, signature) = genuine.split_once('.').unwrap();
    let other = Client::named(world.ports[0], "bob").await.token.unwrap();
    let swapped = format!("{}.{signature}", other.split_once('.').unwrap().0);
    for token in [
        "",
        ".",
        "x",
        payload,
        &swapped,
        &format!("{payload}."),
        &"A".repeat(10_000),
    ] {
        let forged = Client {
            token: Some(token.to_owned()),
            ..ann.clone()
        };
        let refused = forged.post("/v1/subscriptions", &json!({"filter": "author:ann"})).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token}: {}", refused.text);
        let path = format!("/v1/notifications/stream?access_token={token}");
        let refused = Client::stranger(world.ports[0]).get(&path).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token}: {}", refused.text);
    }
    let markup = "<script>alert(1)</script><img src=x onerror=alert(1)> ' OR 1=1 --";
    let published = ann
        .post(
            "/v1/articles",
            &json!({"category": markup, "tags": [markup], "title": markup, "body": markup}),
        )
        .await;
    assert_eq!(published.status, StatusCode::CREATED, "{}", published.text);
    for member in ["category", "title", "body"] {
        assert_eq!(published.body[member], markup);
    }
    assert_eq!(published.header("content-type"), "application/json");
    assert_eq!(published.header("x-content-type-options"), "nosniff");
}
