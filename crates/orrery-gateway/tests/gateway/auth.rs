use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use orrery_gateway::Settings;
use orrery_model::{Error, ResourceId, Status};
use orrery_node::api::{MetadataVerb, Operation, Outcome, Principal, ResourceKind};

use crate::client::{authorization, create_item, date_text, key, now_text, read_item, send, signed};
use crate::server::{Script, Server, found};

/// Answers `{}` and nothing else.
fn server() -> Server {
    Server::start(Script::finds("{}"), Settings::default())
}

fn with_authorization(mut request: http::Request<Full<Bytes>>, value: &str) -> http::Request<Full<Bytes>> {
    request.headers_mut().insert("authorization", value.parse().unwrap());
    request
}

#[tokio::test]
async fn a_wrong_signature_is_refused_and_the_message_says_what_was_signed() {
    let wrong = authorization(b"wrong", "GET", "docs", "dbs/d/colls/c/docs/x", &now_text());
    let answer = send(server().address, with_authorization(read_item(), &wrong)).await;
    assert_eq!(answer.status, 401);
    let error = answer.json();
    assert_eq!(error["code"], "Unauthorized");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("get\ndocs\ndbs/d/colls/c/docs/x\n"), "{message}");
}

#[tokio::test]
async fn a_request_without_a_usable_authorization_is_refused_with_401() {
    let server = server();
    let mut request = read_item();
    request.headers_mut().remove("authorization");
    assert_eq!(send(server.address, request).await.status, 401);
    for value in [
        "nonsense",
        "type=aad&ver=1.0&sig=abc",
        "type=resource&ver=1&sig=abc;def;",
    ] {
        assert_eq!(
            send(server.address, with_authorization(read_item(), value))
                .await
                .status,
            401,
            "{value}"
        );
    }
}

#[tokio::test]
async fn a_signature_of_an_hour_ago_is_refused_with_403() {
    let date = date_text(-3600);
    let header = authorization(&key(), "GET", "docs", "dbs/d/colls/c/docs/x", &date);
    let mut request = with_authorization(read_item(), &header);
    request.headers_mut().insert("x-ms-date", date.parse().unwrap());
    let answer = send(server().address, request).await;
    assert_eq!((answer.status, answer.header("x-ms-substatus")), (403, "0"));
}

/// Knows one container and one permission for it; other operations answer who asked.
fn permission_script(container: ResourceId) -> Script {
    Script::new(move |request| {
        let container = container.clone();
        async move {
            match (&request.operation, &request.principal) {
                (Operation::Metadata(metadata), _) if metadata.kind == ResourceKind::Permission => {
                    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c","resourcePartitionKey":["a"],"_rid":"AAAAAAAAAAAAAAAAAAAAAA=="}"#;
                    let mut reply = found(body);
                    if let (MetadataVerb::Create { .. }, Outcome::Found(resource)) = (&metadata.verb, &reply.outcome) {
                        reply.outcome = Outcome::Created(resource.clone());
                    }
                    Ok(reply)
                }
                (Operation::Metadata(metadata), _) if metadata.kind == ResourceKind::Container => {
                    Ok(found(format!(r#"{{"id":"c","_rid":"{container}"}}"#)))
                }
                (_, Principal::Grant(grant)) if grant.resource == container && grant.read_only => {
                    Ok(found(format!(r#"{{"key":{}}}"#, grant.partition_key.as_ref().unwrap())))
                }
                _ => Err(Error::new(Status::FORBIDDEN, "not granted").into()),
            }
        }
    })
}

#[tokio::test]
async fn the_token_of_a_permission_carries_its_grant() {
    let container = ResourceId::container(&ResourceId::database(1), 1);
    let server = Server::start(permission_script(container), Settings::default());
    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let create = || {
        signed(
            "POST",
            "/dbs/d/users/u/permissions",
            "permissions",
            "dbs/d/users/u",
            body,
        )
    };
    let answer = send(server.address, create()).await;
    assert_eq!(answer.status, 201);
    let token = answer.json()["_token"].as_str().expect("a token").to_owned();
    let read = send(server.address, with_authorization(read_item(), &token)).await;
    assert_eq!((read.status, read.body.as_ref()), (200, br#"{"key":["a"]}"#.as_slice()));
    let mut forever = create();
    forever
        .headers_mut()
        .insert("x-ms-documentdb-expiry-seconds", "99999".parse().unwrap());
    assert_eq!(send(server.address, forever).await.status, 400);
}

#[tokio::test]
async fn nothing_of_an_unknown_senders_body_is_handed_on() {
    let seen = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = Arc::clone(&seen);
    let script = Script::new(move |_| {
        flag.store(true, std::sync::atomic::Ordering::SeqCst);
        async { Ok(found("{}")) }
    });
    let server = Server::start(script, Settings::default());
    let request = with_authorization(create_item(vec![b'x'; 1000]), "type=master&ver=1.0&sig=AAAA");
    assert_eq!(send(server.address, request).await.status, 401);
    assert!(!seen.load(std::sync::atomic::Ordering::SeqCst));
}
