//! Reviews and what they come to.

use http::StatusCode;
use serde::Deserialize;

use crate::answer::{Answer, Failure, json_answer};
use crate::read;
use crate::service::{Call, Platform};
use crate::view;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReviewForm {
    #[serde(default)]
    text: String,
    rating: u8,
}

pub async fn write(platform: &Platform, call: Call, article: &str) -> Result<Answer, Failure> {
    let user = call.user()?.to_owned();
    let form: ReviewForm = read::body(call.body, platform.settings.body_bytes_max).await?;
    let written = platform
        .database
        .write_review(article, &user, &form.text, form.rating)
        .await?;
    let (review, is_new) = written;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_answer(status, &view::review(review)))
}

pub async fn list(platform: &Platform, call: &Call, article: &str) -> Result<Answer, Failure> {
    let page = platform
        .database
        .read_reviews(article, &read::page_request(&call.parts)?)
        .await?;
    Ok(json_answer(StatusCode::OK, &view::page(page, view::review)))
}

pub async fn summary(platform: &Platform, article: &str) -> Result<Answer, Failure> {
    let summary = platform.database.read_article_summary(article).await?;
    Ok(json_answer(StatusCode::OK, &view::summary(summary)))
}
