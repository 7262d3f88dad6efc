//! Subscriptions of the user who asks.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Failure, json_answer};
use crate::read;
use crate::service::{Call, Platform};
use crate::view;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SubscriptionForm {
    filter: String,
    /// How many articles of before are wanted.
    #[serde(default)]
    backfill: usize,
}

pub async fn list(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let (active, accounts) = platform.database.list_subscriptions(call.user()?).await?;
    let items: Vec<Value> = active
        .iter()
        .map(|active| json!({"filter": active.filter, "since": active.since}))
        .collect();
    let shown = json!({"items": items, "missing": view::missing(&accounts), "accounts": accounts});
    Ok(json_answer(StatusCode::OK, &shown))
}

pub async fn create(platform: &Platform, call: Call) -> Result<Answer, Failure> {
    let user = call.user()?.to_owned();
    let form: SubscriptionForm = read::body(call.body, platform.settings.body_bytes_max).await?;
    let made = platform
        .database
        .create_subscription_with_backfill(&user, &form.filter, form.backfill)
        .await?;
    let mut shown = json!({"filter": made.subscription.filter, "since": made.subscription.since});
    if form.backfill > 0 {
        shown["backfilled"] = json!(made.n_new);
        shown["missing"] = json!(made.missing);
    }
    Ok(json_answer(StatusCode::CREATED, &shown))
}

pub async fn delete(platform: &Platform, call: &Call, filter: &str) -> Result<Answer, Failure> {
    let done = platform.database.delete_subscription(call.user()?, filter).await?;
    let shown = json!({"filter": done.filter, "queued": done.queued});
    Ok(json_answer(StatusCode::OK, &shown))
}

pub async fn migrate(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let moved = platform.database.migrate_subscriptions(call.user()?).await?;
    Ok(json_answer(StatusCode::OK, &json!({"moved": moved})))
}
