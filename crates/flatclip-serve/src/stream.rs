//! Streamed responses: lines of JSON, or server-sent events.

use crate::Charge;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The queue of pieces. It has room for all of them, so that the producer never waits for a slow client; their memory was
/// reserved before.
#[derive(Clone)]
pub(crate) struct Pieces {
    to: mpsc::Sender<Bytes>,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON value per line.
    Lines,
    /// Named events.
    Events,
}

impl Form {
    fn media_type(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Events => "text/event-stream",
        }
    }

    fn write<T: Serialize>(self, event: &str, value: &T) -> Bytes {
        let json = serde_json::to_string(value).unwrap_or_default();
        match self {
            Self::Lines => format!("{json}\n").into(),
            Self::Events => format!("event: {event}\ndata: {json}\n\n").into(),
        }
    }
}

impl Pieces {
    /// Sends a piece; false if the client has disconnected.
    pub(crate) fn send<T: Serialize>(&self, event: &str, value: &T) -> bool {
        self.to.try_send(self.form.write(event, value)).is_ok()
    }

    /// Whether the client accepts events, so that progress is reported.
    pub(crate) fn tells_progress(&self) -> bool {
        self.form == Form::Events
    }
}

/// A response of at most `most` pieces, which `make` sends and `memory` holds.
pub(crate) fn pieces<F: Future<Output = ()> + Send + 'static>(
    form: Form,
    most: usize,
    memory: Charge,
    make: impl FnOnce(Pieces) -> F,
) -> Response {
    let (to, from) = mpsc::channel(most.max(1));
    // Aborted when it is dropped together with the response: if the client disconnects, jobs that have not started are cancelled.
    let mut work = JoinSet::new();
    work.spawn(make(Pieces { to, form }));
    let stream = unfold((from, work, memory), async |(mut from, work, memory)| {
        from.recv().await.map(|piece| (Ok::<_, std::convert::Infallible>(piece), (from, work, memory)))
    });
    ([(header::CONTENT_TYPE, form.media_type())], Body::from_stream(stream)).into_response()
}
