//! Streams to pages: the state, its changes as server-sent events, the past.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State as Shared};
use axum::http::HeaderMap;
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, OwnedSemaphorePermit};

use crate::app::App;
use crate::live::Published;
use crate::reply::{self, Answer, Refusal};
use crate::system;
use crate::types::Tick;

/// Time between two signs of life.
const TICK_INTERVAL: Duration = Duration::from_secs(5);

/// `GET /api/v1/state`.
pub async fn state(Shared(app): Shared<Arc<App>>) -> Answer {
    reply::json(&*app.live.look(true).await?)
}

/// The query of a history.
#[derive(Deserialize)]
pub struct HistoryQuery {
    name: String,
    kind: String,
}

/// `GET /api/v1/history`.
pub async fn history(Shared(app): Shared<Arc<App>>, Query(query): Query<HistoryQuery>) -> Answer {
    if !["network", "experiment"].contains(&query.kind.as_str()) {
        return Err(Refusal::wrong("kind: expected network or experiment"));
    }
    reply::json(&app.live.past(&query.kind, &query.name))
}

/// A page that is connected.
struct Listener {
    app: Arc<App>,
    changes: broadcast::Receiver<Arc<Published>>,
    /// The number of the last change that it has.
    seq: u64,
    missed: VecDeque<Arc<Published>>,
    needs_state: bool,
    tick: tokio::time::Interval,
    _place: OwnedSemaphorePermit,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.app.live.leave();
    }
}

/// `GET /api/v1/live`: server-sent events.
pub async fn stream(Shared(app): Shared<Arc<App>>, headers: HeaderMap) -> Answer {
    let place = app.streams.clone().try_acquire_owned();
    let place =
        place.map_err(|_| Refusal::too_many("live: expected at most 32 streams at once"))?;
    // From here on, no change is missed.
    let changes = app.live.join();
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let missed = last.and_then(|id| app.live.missed(id));
    let mut listener = Listener {
        changes,
        seq: missed.as_ref().map_or(0, |(seq, _)| *seq),
        needs_state: missed.is_none(),
        missed: missed.map(|(_, missed)| missed.into()).unwrap_or_default(),
        tick: tokio::time::interval(TICK_INTERVAL),
        app,
        _place: place,
    };
    listener.tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<Bytes, Infallible>(event.into()), listener))
    });
    Ok(reply::with_type(Body::from_stream(events), "text/event-stream"))
}

impl Listener {
    /// Returns the next event; `None` when the server ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.needs_state {
                let state = self.app.live.look(true).await.ok()?;
                (self.needs_state, self.seq) = (false, state.seq);
                let text = serde_json::to_string(&*state).unwrap_or_default();
                return Some(self.event("state", &text));
            }
            if let Some(change) = self.missed.pop_front() {
                self.seq = change.seq;
                return Some(self.event("change", &change.text));
            }
            tokio::select! {
                change = self.changes.recv() => match change {
                    // The state or what was missed had it already.
                    Ok(change) if change.seq <= self.seq => {}
                    Ok(change) => {
                        self.seq = change.seq;
                        return Some(self.event("change", &change.text));
                    }
                    Err(RecvError::Lagged(_)) => self.needs_state = true,
                    Err(RecvError::Closed) => return None,
                },
                _ = self.tick.tick() => {
                    let tick = Tick { real_ns: system::now().real_ns };
                    let text = serde_json::to_string(&tick).unwrap_or_default();
                    return Some(format!("event: tick\ndata: {text}\n\n"));
                }
            }
        }
    }

    fn event(&self, kind: &str, text: &str) -> String {
        format!("id: {}\nevent: {kind}\ndata: {text}\n\n", self.app.live.id(self.seq))
    }
}
