//! Answers: JSON or a stream, and failures in one shape, built in one place.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use orrery_publishing::PublishError;
use serde::Serialize;
use serde_json::json;

use crate::route::NoRoute;

pub type Body = UnsyncBoxBody<Bytes, Infallible>;
pub type Answer = Response<Body>;

/// What a client is told to wait when nobody said how long.
const RETRY_AFTER_S: u64 = 1;

/// A failure as clients see it.
#[derive(Debug)]
pub struct Failure {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub retry_after_s: Option<u64>,
    pub allow: Vec<Method>,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            status,
            code,
            message: message.into(),
            retry_after_s: None,
            allow: Vec::new(),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub fn later(self, retry_after_s: u64) -> Failure {
        Failure {
            retry_after_s: Some(retry_after_s),
            ..self
        }
    }

    pub fn answer(&self, request_id: &str) -> Answer {
        let body = json!({"error": {"code": self.code, "message": self.message, "requestId": request_id}});
        let mut answer = json_answer(self.status, &body);
        let headers = answer.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let methods = self.allow.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        if !methods.is_empty()
            && let Ok(value) = HeaderValue::try_from(methods)
        {
            headers.insert(ALLOW, value);
        }
        answer
    }
}

impl From<NoRoute> for Failure {
    fn from(none: NoRoute) -> Failure {
        match none {
            NoRoute::Path => Failure::new(StatusCode::NOT_FOUND, "not-found", "there is nothing under this path"),
            NoRoute::Malformed => Failure::invalid("the path cannot be decoded"),
            NoRoute::Method(allow) => Failure {
                allow,
                ..Failure::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "this path knows other methods",
                )
            },
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Failure {
        let (status, code) = match &error {
            PublishError::Invalid(_)
            | PublishError::Filter(_)
            | PublishError::Continuation(_)
            | PublishError::PageSize(_)
            | PublishError::Backfill(_)
            | PublishError::Table(_) => (StatusCode::BAD_REQUEST, "invalid"),
            PublishError::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            PublishError::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            PublishError::Exists => (StatusCode::CONFLICT, "exists"),
            PublishError::TooManySubscriptions(_) => (StatusCode::CONFLICT, "too-many"),
            PublishError::Retracted => (StatusCode::CONFLICT, "retracted"),
            PublishError::Changed => (StatusCode::PRECONDITION_FAILED, "changed"),
            PublishError::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            PublishError::Unknown(_) => (StatusCode::SERVICE_UNAVAILABLE, "unknown"),
            PublishError::Incomplete(_) => (StatusCode::SERVICE_UNAVAILABLE, "incomplete"),
            PublishError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            PublishError::Refused(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        if let PublishError::Refused(cause) = &error {
            tracing::error!(%cause, source = ?cause.source, "an account refused what this service asked of it");
        }
        let failure = Failure::new(status, code, error.to_string());
        match (error, status) {
            (PublishError::Busy { retry_after }, _) => failure.later(whole_seconds(retry_after)),
            (_, StatusCode::SERVICE_UNAVAILABLE) => failure.later(RETRY_AFTER_S),
            _ => failure,
        }
    }
}

fn whole_seconds(after: Option<Duration>) -> u64 {
    after.map_or(RETRY_AFTER_S, |after| after.as_secs_f64().ceil().max(1.0) as u64)
}

pub fn json_answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(body).expect("answers are plain data");
    typed_answer(status, "application/json", bytes.into())
}

pub fn typed_answer(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(bytes).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // What people wrote is never taken for a page or a script, whatever it looks like.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

pub fn with_etag(mut answer: Answer, etag: Option<&str>) -> Answer {
    if let Some(value) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
        answer.headers_mut().insert(ETAG, value);
    }
    answer
}

pub fn empty(status: StatusCode) -> Answer {
    typed_answer(status, "text/plain", Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_condition_that_failed_is_answered_so_and_whoever_may_come_again_is_told_when() {
        let shown = |error: PublishError| {
            let failure = Failure::from(error);
            (failure.status.as_u16(), failure.code, failure.retry_after_s)
        };
        assert_eq!(shown(PublishError::Changed), (412, "changed", None));
        assert_eq!(shown(PublishError::Busy { retry_after: None }), (429, "busy", Some(1)));
        assert_eq!(shown(PublishError::TooManySubscriptions(3)), (409, "too-many", None));
    }
}
