//! The body of an answer: bytes that are there already, or events for as long as somebody listens.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::admin::EventStream;

#[derive(Debug)]
pub enum AnswerBody {
    Whole(Full<Bytes>),
    Events(EventStream),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            AnswerBody::Whole(whole) => Pin::new(whole).poll_frame(cx),
            AnswerBody::Events(events) => events.poll_next(cx).map(|text| text.map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Whole(whole) => whole.is_end_stream(),
            AnswerBody::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(whole) => whole.size_hint(),
            AnswerBody::Events(_) => SizeHint::default(),
        }
    }
}
