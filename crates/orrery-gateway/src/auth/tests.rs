use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::ResourceId;
use orrery_node::account::Secret;
use orrery_node::api::Grant;

use super::*;

const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
const NOW: Timestamp = Timestamp(1_493_254_272_000);
const TODO_LIST_KEY: &str = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
const EMULATOR_KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

fn keys(primary: &str) -> Arc<AccountKeys> {
    let secret = |byte| Secret(vec![byte; 64]);
    Arc::new(AccountKeys {
        primary: Secret(STANDARD.decode(primary).unwrap()),
        secondary: secret(2),
        primary_read_only: secret(3),
        secondary_read_only: secret(4),
        internal: secret(5),
    })
}

fn authenticate(keys: &Arc<AccountKeys>, signed: Signed<'_>, authorization: &str, now: Timestamp) -> Result<Principal> {
    let credentials = Credentials {
        authorization: Some(authorization),
        x_ms_date: Some(DATE),
        date: None,
    };
    Authenticator::new(Arc::clone(keys)).authenticate(keys, signed, credentials, now)
}

fn sign(key: &[u8], signed: Signed<'_>) -> String {
    let credentials = Credentials {
        x_ms_date: Some(DATE),
        ..Credentials::default()
    };
    let payload = signature::payload(signed, credentials).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    format!(
        "type=master&ver=1.0&sig={}",
        STANDARD.encode(ring::hmac::sign(&key, payload.as_bytes()))
    )
}

const DATABASES: Signed<'static> = Signed {
    verb: "GET",
    resource_type: "dbs",
    link: "",
};

#[test]
fn the_published_signatures_are_accepted() {
    for (key, verb, resource_type, link, signature) in [
        (
            TODO_LIST_KEY,
            "GET",
            "dbs",
            "dbs/ToDoList",
            "c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c=",
        ),
        (
            EMULATOR_KEY,
            "GET",
            "",
            "",
            "gFB1bRB/PLJTG3bCgMuoVgNzOyFvZAamzEtLuSITjRc=",
        ),
        (
            EMULATOR_KEY,
            "GET",
            "dbs",
            "",
            "Bk4MqbjRdQImb4Rqp5pmqv1/OhkMQU93qlTmk/SzVRQ=",
        ),
        (
            EMULATOR_KEY,
            "POST",
            "docs",
            "dbs/MyDb/colls/MyColl",
            "s0xP8VO0ZOVHL99FhcwggjhrnponOpQXEk+T5PrPBUg=",
        ),
        (
            EMULATOR_KEY,
            "GET",
            "pkranges",
            "ahagaa8aaaa=",
            "CTC+T545LBhCrkFT0hXQz1vK6Vj8MgH5is9chVYeC7A=",
        ),
    ] {
        let signed = Signed {
            verb,
            resource_type,
            link,
        };
        let principal = authenticate(&keys(key), signed, &format!("type=master&ver=1.0&sig={signature}"), NOW);
        assert_eq!(principal.expect(link), Principal::Account { read_only: false });
    }
}

#[test]
fn every_key_of_the_account_signs_and_only_two_may_write() {
    let keys = keys(EMULATOR_KEY);
    for (secret, read_only) in [
        (&keys.primary, false),
        (&keys.secondary, false),
        (&keys.primary_read_only, true),
        (&keys.secondary_read_only, true),
    ] {
        let principal = authenticate(&keys, DATABASES, &sign(&secret.0, DATABASES), NOW).unwrap();
        assert_eq!(principal, Principal::Account { read_only });
    }
    let internal = sign(&keys.internal.0, DATABASES);
    assert_eq!(
        authenticate(&keys, DATABASES, &internal, NOW)
            .expect_err("internal")
            .status(),
        Status::UNAUTHORIZED
    );
}

#[test]
fn a_wrong_signature_is_answered_with_the_text_the_server_signed() {
    let error = authenticate(&keys(EMULATOR_KEY), DATABASES, &sign(b"other", DATABASES), NOW).expect_err("wrong key");
    assert_eq!(error.status(), Status::UNAUTHORIZED);
    assert!(
        error
            .message()
            .contains("'get\ndbs\n\nthu, 27 apr 2017 00:51:12 gmt\n\n'"),
        "{}",
        error.message()
    );
}

#[test]
fn a_good_signature_outside_its_time_is_refused_with_403() {
    let keys = keys(EMULATOR_KEY);
    let late = Timestamp(NOW.0 + 31 * 60 * 1000);
    let error = authenticate(&keys, DATABASES, &sign(&keys.primary.0, DATABASES), late).expect_err("late");
    assert_eq!(error.status(), Status::FORBIDDEN);
}

#[test]
fn the_date_header_counts_only_without_x_ms_date() {
    let keys = keys(EMULATOR_KEY);
    let credentials = Credentials {
        date: Some(DATE),
        ..Credentials::default()
    };
    let payload = signature::payload(DATABASES, credentials).unwrap();
    assert_eq!(payload, "get\ndbs\n\n\nthu, 27 apr 2017 00:51:12 gmt\n");
    let both = Credentials {
        x_ms_date: Some(DATE),
        date: Some("anything"),
        ..Credentials::default()
    };
    assert_eq!(
        signature::payload(DATABASES, both).unwrap(),
        "get\ndbs\n\nthu, 27 apr 2017 00:51:12 gmt\n\n"
    );
    let neither = Authenticator::new(Arc::clone(&keys)).authenticate(
        &keys,
        DATABASES,
        Credentials {
            authorization: Some("type=master&ver=1.0&sig=AAAA"),
            ..Credentials::default()
        },
        NOW,
    );
    assert_eq!(neither.expect_err("no date").status(), Status::UNAUTHORIZED);
}

#[test]
fn an_entra_token_is_refused_with_a_clear_message() {
    let error = authenticate(&keys(EMULATOR_KEY), DATABASES, "type=aad&ver=1.0&sig=e.y.J", NOW).expect_err("entra");
    assert_eq!(error.status(), Status::UNAUTHORIZED);
    assert!(error.message().contains("Entra"), "{}", error.message());
}

#[test]
fn a_resource_token_brings_its_grant() {
    let keys = keys(EMULATOR_KEY);
    let grant = Grant {
        resource: ResourceId::database(3),
        read_only: true,
        partition_key: None,
        item: None,
    };
    let token = resource_token::issue(&Keyring::new(Arc::clone(&keys)), &grant, 60, NOW);
    assert_eq!(
        authenticate(&keys, DATABASES, &token, NOW).unwrap(),
        Principal::Grant(grant)
    );
}

#[test]
fn rotated_keys_take_effect_at_once() {
    let (old, new) = (keys(TODO_LIST_KEY), keys(EMULATOR_KEY));
    let authenticator = Authenticator::new(Arc::clone(&old));
    let header = sign(&old.primary.0, DATABASES);
    let credentials = Credentials {
        authorization: Some(&header),
        x_ms_date: Some(DATE),
        date: None,
    };
    assert!(authenticator.authenticate(&old, DATABASES, credentials, NOW).is_ok());
    assert!(authenticator.authenticate(&new, DATABASES, credentials, NOW).is_err());
}
