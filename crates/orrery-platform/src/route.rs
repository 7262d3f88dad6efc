//! Which requests exist: a method and a path into one value, and nothing else.
//!
//! Invariant: every route is named once here and once in the OpenAPI document; a test compares them.

use http::Method;

/// What is asked for. Names in paths are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Health,
    Ready,
    Metrics,
    OpenApi,
    Status,
    DevToken,
    Me,
    Regions,
    PublishArticle,
    ListArticles,
    ReadArticle(String),
    UpdateArticle(String),
    RetractArticle(String),
    WriteReview(String),
    ReadReviews(String),
    ReadSummary(String),
    ListSubscriptions,
    Subscribe,
    Unsubscribe(String),
    MigrateSubscriptions,
    ReadNotifications,
    MarkRead(String),
    Stream,
}

/// A request that is no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// The path is not known.
    Path,
    /// The path is known with these methods only.
    Method(Vec<Method>),
    /// The path cannot be decoded.
    Malformed,
}

type Make = fn(String) -> Route;

/// Every route: method, path, what to call it in metrics, how to make it. `{}` stands for one name.
const ROUTES: [(Method, &str, &str, Make); 23] = [
    (Method::GET, "/healthz", "health", |_| Route::Health),
    (Method::GET, "/readyz", "ready", |_| Route::Ready),
    (Method::GET, "/metrics", "metrics", |_| Route::Metrics),
    (Method::GET, "/openapi.json", "openapi", |_| Route::OpenApi),
    (Method::GET, "/v1/status", "status", |_| Route::Status),
    (Method::POST, "/v1/dev/tokens", "dev_token", |_| Route::DevToken),
    (Method::GET, "/v1/me", "me", |_| Route::Me),
    (Method::GET, "/v1/regions", "regions", |_| Route::Regions),
    (Method::POST, "/v1/articles", "publish_article", |_| {
        Route::PublishArticle
    }),
    (Method::GET, "/v1/articles", "list_articles", |_| Route::ListArticles),
    (Method::GET, "/v1/articles/{}", "read_article", Route::ReadArticle),
    (Method::PUT, "/v1/articles/{}", "update_article", Route::UpdateArticle),
    (
        Method::DELETE,
        "/v1/articles/{}",
        "retract_article",
        Route::RetractArticle,
    ),
    (
        Method::PUT,
        "/v1/articles/{}/review",
        "write_review",
        Route::WriteReview,
    ),
    (
        Method::GET,
        "/v1/articles/{}/reviews",
        "read_reviews",
        Route::ReadReviews,
    ),
    (
        Method::GET,
        "/v1/articles/{}/summary",
        "read_summary",
        Route::ReadSummary,
    ),
    (Method::GET, "/v1/subscriptions", "list_subscriptions", |_| {
        Route::ListSubscriptions
    }),
    (Method::POST, "/v1/subscriptions", "subscribe", |_| Route::Subscribe),
    (
        Method::POST,
        "/v1/subscriptions/migrate",
        "migrate_subscriptions",
        |_| Route::MigrateSubscriptions,
    ),
    (
        Method::DELETE,
        "/v1/subscriptions/{}",
        "unsubscribe",
        Route::Unsubscribe,
    ),
    (Method::GET, "/v1/notifications", "read_notifications", |_| {
        Route::ReadNotifications
    }),
    (Method::GET, "/v1/notifications/stream", "stream", |_| Route::Stream),
    (Method::POST, "/v1/notifications/{}/read", "mark_read", Route::MarkRead),
];

/// The route of a request, and its name.
pub fn route(method: &Method, path: &str) -> Result<(Route, &'static str), NoRoute> {
    let mut allowed = Vec::new();
    for (wanted, pattern, name, make) in &ROUTES {
        let Some(argument) = matched(pattern, path) else {
            continue;
        };
        if wanted == method {
            let argument = decode(argument, false).ok_or(NoRoute::Malformed)?;
            return Ok((make(argument), name));
        }
        allowed.push(wanted.clone());
    }
    Err(if allowed.is_empty() {
        NoRoute::Path
    } else {
        NoRoute::Method(allowed)
    })
}

/// The name in the place of `{}`, still encoded; empty for a pattern without one.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once("{}") else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Undoes percent encoding; nothing if it is broken or no text.
pub fn decode(text: &str, plus_is_blank: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high * 16 + low) as u8
            }
            b'+' if plus_is_blank => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Method and path of every route, as the OpenAPI document writes them.
pub fn all() -> impl Iterator<Item = (String, &'static str)> {
    ROUTES
        .iter()
        .map(|(method, pattern, ..)| (method.as_str().to_lowercase(), *pattern))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_in_a_path_is_decoded_once() {
        let found = |method, path| route(&method, path).map(|(route, _)| route);
        assert_eq!(
            found(Method::GET, "/v1/articles/usa.X"),
            Ok(Route::ReadArticle("usa.X".into()))
        );
        assert_eq!(
            found(Method::DELETE, "/v1/subscriptions/author%3Aann%2Fb"),
            Ok(Route::Unsubscribe("author:ann/b".into()))
        );
        assert_eq!(found(Method::GET, "/v1/notifications/stream"), Ok(Route::Stream));
        assert_eq!(
            found(Method::POST, "/v1/notifications/n/read"),
            Ok(Route::MarkRead("n".into()))
        );
        assert_eq!(found(Method::GET, "/v1/articles/%zz"), Err(NoRoute::Malformed));
        assert_eq!(found(Method::GET, "/v1/articles/"), Err(NoRoute::Path));
        assert_eq!(found(Method::GET, "/v2/articles"), Err(NoRoute::Path));
    }

    #[test]
    fn a_known_path_with_another_method_says_which_it_knows() {
        let allowed = |path| match route(&Method::PATCH, path) {
            Err(NoRoute::Method(methods)) => methods,
            other => panic!("{other:?}"),
        };
        assert_eq!(allowed("/v1/articles"), [Method::POST, Method::GET]);
        assert_eq!(allowed("/v1/articles/a"), [Method::GET, Method::PUT, Method::DELETE]);
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "/.{0,100}") {
            let _ = route(&Method::GET, &path);
        }
    }
}
