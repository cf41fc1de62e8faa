//! Captures by WebSocket: the frames of an interface as pcapng, by `lorentz capture`.
//!
//! A page that reads too slowly loses whole blocks, and a text message says how many frames are missing so far. The blocks at the
//! head of the file are never lost.

use std::process::Stdio;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Query, State};
use futures_util::{SinkExt, StreamExt};
use lorentz_container::is_name;
use lorentz_network::plan::Endpoint;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::app::App;
use crate::listen::Peer;
use crate::log;
use crate::reply::{Answer, Refusal};
use crate::types::CaptureDropped;

/// Chunks of blocks that the page may be behind.
const MAX_BEHIND: usize = 64;
/// Bytes read at once.
const BUFFER_LEN: usize = 64 * 1024;
/// Longest block: the greatest frame and its header.
const MAX_BLOCK: usize = 1 << 20;
/// The type of a block with a frame.
const ENHANCED_PACKET: u32 = 6;

/// The query of a capture.
#[derive(Deserialize)]
pub struct CaptureQuery {
    network: String,
    end: String,
}

/// `GET /api/v1/capture`, as a WebSocket.
pub async fn capture(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<CaptureQuery>,
    upgrade: WebSocketUpgrade,
) -> Answer {
    if !is_name(&query.network) {
        return Err(Refusal::unknown("network: no such network"));
    }
    let end: Endpoint =
        query.end.parse().map_err(|error| Refusal::wrong(format!("end: {error}")))?;
    let state = app.live.look(false).await?;
    let network = state.networks.iter().find(|network| network.name == query.network);
    let network = network.ok_or_else(|| Refusal::unknown("network: no such network"))?;
    let name = end.to_string();
    let mut ways = network.links.iter().flat_map(|link| &link.directions);
    if !ways.any(|way| way.from == name) {
        return Err(Refusal::unknown(format!("end: {end}: no link ends there")));
    }
    let place = app.terminals.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        Refusal::too_many("capture: expected at most 16 terminals and captures at once")
    })?;
    let mut child = Command::new(&app.lorentz)
        .args(["capture", &name, "--network", &query.network])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Refusal::failed)?;
    let frames = child.stdout.take().ok_or_else(|| Refusal::failed("no output"))?;
    log::action("capture", &peer.0, json!({ "network": query.network, "end": name }));
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _place = place;
        show(frames, socket).await;
        // Its emulator sees that nobody reads any more.
        let _ = child.kill().await;
        log::action("capture closed", &peer.0, json!({ "network": query.network, "end": name }));
    }))
}

async fn show(frames: impl AsyncRead + Unpin + Send + 'static, socket: WebSocket) {
    let (mut to_page, mut from_page) = socket.split();
    let (chunks, mut queue) = mpsc::channel(MAX_BEHIND);
    let reader = tokio::spawn(read(frames, chunks));
    loop {
        tokio::select! {
            chunk = queue.recv() => {
                let Some(Chunk { bytes, dropped }) = chunk else { break };
                if let Some(dropped) = dropped {
                    let text = serde_json::to_string(&CaptureDropped { dropped }).unwrap_or_default();
                    if to_page.send(Message::Text(text.into())).await.is_err() {
                        break;
                    }
                }
                if to_page.send(Message::Binary(bytes.into())).await.is_err() {
                    break;
                }
            }
            message = from_page.next() => match message {
                None | Some(Err(_) | Ok(Message::Close(_))) => break,
                Some(Ok(_)) => {}
            },
        }
    }
    reader.abort();
    let _ = to_page.close().await;
}

/// Whole blocks, and the number of frames lost before them, if it has grown.
struct Chunk {
    bytes: Vec<u8>,
    dropped: Option<u64>,
}

/// Cuts the file into whole blocks, and drops those for which there is no room.
async fn read(mut frames: impl AsyncRead + Unpin, chunks: mpsc::Sender<Chunk>) {
    let mut buffer = Vec::new();
    let (mut dropped, mut told) = (0, 0);
    let mut is_begin = true;
    loop {
        let length = buffer.len();
        buffer.resize(length + BUFFER_LEN, 0);
        let Ok(size) = frames.read(&mut buffer[length..]).await else { return };
        buffer.truncate(length + size);
        let Some((end, count)) = whole_blocks(&buffer).filter(|_| size > 0) else { return };
        if end == 0 {
            continue;
        }
        let bytes: Vec<u8> = buffer.drain(..end).collect();
        let news = (dropped > told).then_some(dropped);
        let chunk = Chunk { bytes, dropped: news };
        // Without the head nothing of the file can be read.
        if std::mem::take(&mut is_begin) {
            if chunks.send(chunk).await.is_err() {
                return;
            }
            continue;
        }
        match chunks.try_send(chunk) {
            Ok(()) => told = dropped,
            Err(mpsc::error::TrySendError::Full(_)) => dropped += count,
            Err(mpsc::error::TrySendError::Closed(_)) => return,
        }
    }
}

/// Returns the length of the whole blocks at the begin of `bytes`, and the number of frames in them. `None` if this is no pcapng.
fn whole_blocks(bytes: &[u8]) -> Option<(usize, u64)> {
    let (mut at, mut frames) = (0, 0);
    while let Some(head) = bytes.get(at..at + 8) {
        let word =
            |from: usize| u32::from_ne_bytes(head[from..from + 4].try_into().unwrap_or_default());
        let length = word(4) as usize;
        if !(12..=MAX_BLOCK).contains(&length) {
            return None;
        }
        if at + length > bytes.len() {
            break;
        }
        frames += u64::from(word(0) == ENHANCED_PACKET);
        at += length;
    }
    Some((at, frames))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, length: u32) -> Vec<u8> {
        let mut block = vec![0; length as usize];
        block[..4].copy_from_slice(&kind.to_ne_bytes());
        block[4..8].copy_from_slice(&length.to_ne_bytes());
        block
    }

    #[test]
    fn only_whole_blocks_are_cut_off() {
        let mut bytes = block(0x0a0d_0d0a, 28);
        bytes.extend(block(ENHANCED_PACKET, 100));
        bytes.extend(&block(ENHANCED_PACKET, 60)[..59]);
        assert_eq!(whole_blocks(&bytes), Some((128, 1)));
        assert_eq!(whole_blocks(&bytes[..7]), Some((0, 0)));
        assert_eq!(whole_blocks(&block(1, 12)), Some((12, 0)));
        assert_eq!(whole_blocks(&[0; 16]), None);
    }

    #[tokio::test]
    async fn a_slow_reader_loses_whole_frames_and_hears_how_many() {
        let mut file = block(0x0a0d_0d0a, 28);
        let frames = 500;
        for _ in 0..frames {
            file.extend(block(ENHANCED_PACKET, BUFFER_LEN as u32));
        }
        let (chunks, mut queue) = mpsc::channel(2);
        let reading = tokio::spawn(async move { read(&file[..], chunks).await });
        let mut got = queue.recv().await.unwrap().bytes;
        reading.await.unwrap();
        while let Some(chunk) = queue.recv().await {
            got.extend(chunk.bytes);
        }
        let (length, count) = whole_blocks(&got).unwrap();
        assert_eq!(length, got.len());
        assert!(count > 0 && count < frames, "{count}");
    }
}
