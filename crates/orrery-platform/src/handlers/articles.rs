//! Articles.

use http::StatusCode;
use http::header::IF_MATCH;
use orrery_publishing::database::{Applied, Published};
use orrery_publishing::entity::{Article, Draft};
use orrery_publishing::filter::Filter;
use serde_json::json;

use crate::answer::{Answer, Failure, json_answer, with_etag};
use crate::read;
use crate::service::{Call, Platform};
use crate::view::{self, ArticleView};

fn shown(status: StatusCode, article: Article) -> Answer {
    let etag = article.etag.clone();
    with_etag(json_answer(status, &ArticleView::whole(article)), etag.as_deref())
}

fn applied(result: Applied<Article>) -> Answer {
    match result {
        Applied::Now(article) => shown(StatusCode::OK, article),
        Applied::Queued => json_answer(StatusCode::ACCEPTED, &json!({"queued": true})),
    }
}

pub async fn publish(platform: &Platform, call: Call) -> Result<Answer, Failure> {
    let user = call.user()?.to_owned();
    let attempt = read::header(&call.parts.headers, "idempotency-key")?.map(str::to_owned);
    let draft: Draft = read::body(call.body, platform.settings.body_bytes_max).await?;
    let Published { article, is_new } = platform
        .database
        .publish_article(&user, draft, attempt.as_deref())
        .await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shown(status, article))
}

pub async fn read(platform: &Platform, call: &Call, id: &str) -> Result<Answer, Failure> {
    let token = read::parameter(&call.parts, "token")?;
    // It goes into a header of what this service asks of an account.
    if token
        .as_ref()
        .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(Failure::invalid("the parameter `token` is no session token"));
    }
    let article = platform.database.read_article(id, token.as_deref()).await?;
    Ok(shown(StatusCode::OK, article))
}

pub async fn list(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let mut given = Vec::new();
    for kind in ["author", "category", "tag"] {
        given.extend(read::parameter(&call.parts, kind)?.map(|name| format!("{kind}:{name}")));
    }
    let [filter] = given.as_slice() else {
        return Err(Failure::invalid("give exactly one of `author`, `category` and `tag`"));
    };
    let filter = Filter::parse(filter).map_err(|error| Failure::invalid(error.to_string()))?;
    let page = platform
        .database
        .list_articles(&filter, &read::page_request(&call.parts)?)
        .await?;
    let view = |article| serde_json::to_value(ArticleView::listed(article)).expect("a view is plain data");
    Ok(json_answer(StatusCode::OK, &view::page(page, view)))
}

pub async fn update(platform: &Platform, call: Call, id: &str) -> Result<Answer, Failure> {
    let user = call.user()?.to_owned();
    let etag = read::header(&call.parts.headers, IF_MATCH.as_str())?.map(str::to_owned);
    let etag = etag.ok_or_else(|| Failure::invalid("`If-Match` must name the version that is changed"))?;
    let draft: Draft = read::body(call.body, platform.settings.body_bytes_max).await?;
    Ok(applied(
        platform.database.update_article(&user, id, draft, &etag).await?,
    ))
}

pub async fn retract(platform: &Platform, call: &Call, id: &str) -> Result<Answer, Failure> {
    let etag = read::header(&call.parts.headers, IF_MATCH.as_str())?;
    Ok(applied(
        platform.database.retract_article(call.user()?, id, etag).await?,
    ))
}
