//! Tasks of one container that wait, with their deadlines and what may wake them.

use std::sync::Arc;

use axum::extract::{Path, State};
use lorentz_idle::{task_waits, TaskWait};

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::{Nanos, Wait};

/// Most waits of an answer. A program may have many threads.
const MAX_WAITS: usize = 1_000;

/// `GET /api/v1/containers/NAME/waits`.
pub async fn waits(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer {
    let found = tokio::task::spawn_blocking(move || {
        let container =
            app.state.container(&name).map_err(|error| Refusal::unknown(error.to_string()))?;
        let clock = container.clock().map_err(Refusal::failed)?;
        // Containers may share a clock: only this one's processes are asked for.
        let own = container.processes().map_err(Refusal::failed)?;
        let now = clock.look().now();
        let tasks = task_waits(&clock, &own).into_iter().filter(|task| task.state.is_none());
        Ok(tasks.take(MAX_WAITS).map(|task| shown(task, now.0)).collect::<Vec<Wait>>())
    });
    reply::json(&found.await.map_err(Refusal::failed)??)
}

fn shown(task: TaskWait, now: i64) -> Wait {
    Wait {
        pid: task.pid,
        tid: task.tid,
        thread: task.thread,
        command: task.command,
        call: task.call.unwrap_or_default(),
        on: task.on,
        waker: task.waker,
        until_ns: task.until.map(|until| Nanos(until.0)),
        remaining_ns: task.until.map(|until| Nanos(until.0.saturating_sub(now).max(0))),
    }
}
