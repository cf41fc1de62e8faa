//! Output of nodes: a file each, from any byte on.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use lorentz_network::Network;
use serde::Deserialize;

use crate::app::App;
use crate::reply::{self, Answer, Refusal};
use crate::types::Output;

/// Most bytes of an answer.
const MAX_BYTES: u64 = 256 * 1024;

/// The query of an output.
#[derive(Deserialize)]
pub struct OutputQuery {
    #[serde(default)]
    from: u64,
}

/// `GET /api/v1/networks/NAME/nodes/NODE/output`.
pub async fn output(
    State(app): State<Arc<App>>,
    Path((network, node)): Path<(String, String)>,
    Query(query): Query<OutputQuery>,
) -> Answer {
    let found = tokio::task::spawn_blocking(move || {
        let unknown =
            |error: anyhow::Error| Refusal::unknown(reply::one_line(&format!("{error:#}")));
        let status = Network::open(&app.state, &network).and_then(|mut one| one.status());
        let status = status.map_err(unknown)?;
        let node = status.nodes.into_iter().find(|one| one.name == node);
        let node = node.ok_or_else(|| Refusal::unknown("node: no such node"))?;
        // The node may have printed nothing yet.
        match File::open(&node.output) {
            Ok(file) => part_of(file, query.from).map_err(Refusal::failed),
            Err(_) => Ok(Output { text: String::new(), next: 0, end: 0 }),
        }
    });
    reply::json(&found.await.map_err(Refusal::failed)??)
}

/// Reads at most [`MAX_BYTES`] bytes from byte `from` on. If the file is shorter, it is another file: reads from its begin.
fn part_of(mut file: File, from: u64) -> std::io::Result<Output> {
    let end = file.metadata()?.len();
    let from = if from > end { 0 } else { from };
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    // A character that is not whole yet comes with the next part.
    let whole = match std::str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    bytes.truncate(whole);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Output { text, next: from + whole as u64, end })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn parts_follow_each_other_and_split_no_character() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let euro = "\u{20ac}".as_bytes();
        file.write_all(b"one ").unwrap();
        file.write_all(&euro[..1]).unwrap();
        let read =
            |file: &tempfile::NamedTempFile, from| part_of(file.reopen().unwrap(), from).unwrap();
        let first = read(&file, 0);
        assert_eq!((first.text.as_str(), first.next, first.end), ("one ", 4, 5));
        file.write_all(&euro[1..]).unwrap();
        let second = read(&file, first.next);
        assert_eq!((second.text.as_str(), second.next), ("\u{20ac}", 7));
        assert_eq!(read(&file, 1_000).text, "one \u{20ac}", "a shorter file is another one");
    }
}
