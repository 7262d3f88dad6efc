//! What each route does: one small function each, from a call to an answer.

mod articles;
mod notifications;
mod operate;
mod reviews;
mod subscriptions;

use crate::answer::{Answer, Failure};
use crate::route::Route;
use crate::service::{Call, Platform};

pub(crate) async fn dispatch(platform: &Platform, route: Route, call: Call) -> Result<Answer, Failure> {
    match route {
        Route::Health => Ok(operate::health()),
        Route::Ready => Ok(operate::ready(platform)),
        Route::Metrics => operate::metrics(platform, &call),
        Route::OpenApi => Ok(operate::openapi()),
        Route::Status => operate::status(platform, &call).await,
        Route::DevToken => operate::dev_token(platform, call).await,
        Route::Me => operate::me(platform, &call),
        Route::Regions => Ok(operate::regions(platform)),
        Route::PublishArticle => articles::publish(platform, call).await,
        Route::ListArticles => articles::list(platform, &call).await,
        Route::ReadArticle(id) => articles::read(platform, &call, &id).await,
        Route::UpdateArticle(id) => articles::update(platform, call, &id).await,
        Route::RetractArticle(id) => articles::retract(platform, &call, &id).await,
        Route::WriteReview(article) => reviews::write(platform, call, &article).await,
        Route::ReadReviews(article) => reviews::list(platform, &call, &article).await,
        Route::ReadSummary(article) => reviews::summary(platform, &article).await,
        Route::ListSubscriptions => subscriptions::list(platform, &call).await,
        Route::Subscribe => subscriptions::create(platform, call).await,
        Route::Unsubscribe(filter) => subscriptions::delete(platform, &call, &filter).await,
        Route::MigrateSubscriptions => subscriptions::migrate(platform, &call).await,
        Route::ReadNotifications => notifications::list(platform, &call).await,
        Route::MarkRead(id) => notifications::mark_read(platform, &call, &id).await,
        Route::Stream => notifications::stream(platform, &call),
    }
}
