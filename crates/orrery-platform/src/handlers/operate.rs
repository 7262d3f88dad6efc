//! Health, metrics, who is who and where: what is not about content.

use http::StatusCode;
use orrery_publishing::entity::check_user;
use orrery_publishing::topology::normal_region;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Failure, json_answer, typed_answer};
use crate::service::{Call, Platform};
use crate::{clock, openapi, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenForm {
    user: String,
}

pub fn health() -> Answer {
    json_answer(StatusCode::OK, &json!({"status": "ok"}))
}

pub fn ready(platform: &Platform) -> Answer {
    let (status, text) = if platform.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if platform.is_ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    };
    json_answer(status, &json!({"status": text}))
}

pub fn openapi() -> Answer {
    typed_answer(StatusCode::OK, "application/json", openapi::DOCUMENT.into())
}

/// What operators see is not for everybody.
fn check_local(call: &Call) -> Result<(), Failure> {
    let is_local = read::is_local(&call.parts.headers, call.peer);
    let refused = || {
        Failure::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "this is answered to the own machine only",
        )
    };
    is_local.then_some(()).ok_or_else(refused)
}

pub fn metrics(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    check_local(call)?;
    let gauges = [
        ("orrery_platform_listeners", platform.hub.n_listeners() as f64),
        ("orrery_platform_ready", f64::from(u8::from(platform.is_ready()))),
    ];
    let text = platform.metrics.text(&gauges);
    Ok(typed_answer(StatusCode::OK, "text/plain; version=0.0.4", text.into()))
}

pub async fn status(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    check_local(call)?;
    let database = &platform.database;
    let (accounts, fanout, outbox) =
        futures::join!(database.freshness(), platform.fanout.states(), database.outbox_state());
    let mut shown = json!({
        "region": database.region(), "account": database.local().tag(), "accounts": accounts, "fanout": fanout,
        "listeners": platform.hub.n_listeners(),
    });
    // Absent while the own account does not answer.
    if let Ok(outbox) = outbox {
        shown["outbox"] = json!(outbox);
    }
    Ok(json_answer(StatusCode::OK, &shown))
}

pub async fn dev_token(platform: &Platform, call: Call) -> Result<Answer, Failure> {
    let none = || Failure::new(StatusCode::NOT_FOUND, "not-found", "tokens are given out elsewhere");
    if !platform.settings.development {
        return Err(none());
    }
    let form: TokenForm = read::body(call.body, platform.settings.body_bytes_max).await?;
    check_user(&form.user).map_err(|error| Failure::invalid(error.to_string()))?;
    let (token, until) = platform.verifier.issue(&form.user, clock::now_ms()).ok_or_else(none)?;
    let shown = json!({"user": form.user, "token": token, "expiresAt": until});
    Ok(json_answer(StatusCode::CREATED, &shown))
}

pub fn me(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let database = &platform.database;
    let shown = json!({"user": call.user()?, "region": database.region(), "account": database.local().tag()});
    Ok(json_answer(StatusCode::OK, &shown))
}

pub fn regions(platform: &Platform) -> Answer {
    let own = platform.database.region();
    let region = |(name, entry): (&str, &orrery_publishing::topology::AccountEntry)| {
        let mut known = platform.settings.regions.iter();
        let url = known.find(|known| normal_region(&known.region) == normal_region(name));
        let mut shown = json!({"name": name, "account": entry.tag, "local": name == own});
        if let Some(url) = url {
            shown["url"] = json!(url.url);
        }
        shown
    };
    let regions: Vec<Value> = platform.database.table().homes().map(region).collect();
    json_answer(StatusCode::OK, &json!({"region": own, "regions": regions}))
}
