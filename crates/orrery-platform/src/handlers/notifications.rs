//! Notifications of the user who asks, as a list and as they appear.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use orrery_publishing::database::Applied;
use orrery_publishing::stream::{HubEvent, Listener};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Failure, json_answer};
use crate::read;
use crate::service::{Call, Platform};
use crate::view;

/// How often a quiet stream says that it is alive.
const ALIVE: Duration = Duration::from_secs(15);

pub async fn list(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let request = read::page_request(&call.parts)?;
    let page = platform.database.read_notification_feed(call.user()?, &request).await?;
    Ok(json_answer(StatusCode::OK, &view::page(page, view::notification)))
}

pub async fn mark_read(platform: &Platform, call: &Call, id: &str) -> Result<Answer, Failure> {
    Ok(match platform.database.mark_read(call.user()?, id).await? {
        Applied::Now(at) => json_answer(StatusCode::OK, &json!({"readAt": at})),
        Applied::Queued => json_answer(StatusCode::ACCEPTED, &json!({"queued": true})),
    })
}

pub fn stream(platform: &Platform, call: &Call) -> Result<Answer, Failure> {
    let user = call.user()?;
    if platform.hub.n_listeners() >= platform.settings.listeners_max {
        let full = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "too many are listening");
        return Err(full.later(10));
    }
    let listener = platform
        .hub
        .listen_within(user, platform.settings.listeners_per_user_max);
    let listener = listener.ok_or_else(|| {
        let message = "this user is listening too often already";
        Failure::new(StatusCode::TOO_MANY_REQUESTS, "busy", message).later(10)
    })?;
    let until = Instant::now() + platform.settings.stream_max;
    let frames = frames(listener, platform.closing(), until);
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The events of one listener until it leaves, its time is over or the service closes.
fn frames(
    listener: Listener,
    closing: CancellationToken,
    until: Instant,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let begin = (Some(": listening\n\n".to_owned()), listener, closing);
    futures::stream::unfold(begin, move |(first, mut listener, closing)| async move {
        let text = match first {
            Some(text) => text,
            // Waiting for an event loses none when it is dropped: the hub keeps them for this listener.
            None => tokio::select! {
                () = closing.cancelled() => return None,
                () = tokio::time::sleep_until(until) => return None,
                event = listener.next() => event_text(event?),
                () = tokio::time::sleep(ALIVE) => ": alive\n\n".to_owned(),
            },
        };
        Some((Ok(Frame::data(text.into())), (None, listener, closing)))
    })
}

fn event_text(event: HubEvent) -> String {
    match event {
        HubEvent::New(notification) => {
            format!("event: notification\ndata: {}\n\n", view::notification(*notification))
        }
        HubEvent::Withdrawn { id } => format!("event: withdrawn\ndata: {}\n\n", json!({"id": id})),
        HubEvent::Missed => "event: missed\ndata: {}\n\n".to_owned(),
    }
}
