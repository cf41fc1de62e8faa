//! tokio's own ways to spend time. Argument: nominal nanoseconds. Lines as lt.h describes them.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time;

/// `call` makes the future: its deadline is not to be set before `start`.
async fn item<F: Future>(name: &str, nominal: Duration, call: impl FnOnce() -> F) {
    println!(r#"{{"ev":"ready","case":"{name}"}}"#);
    let start = Instant::now();
    call().await;
    let took = start.elapsed().as_secs_f64();
    let expect = nominal.as_secs_f64();
    println!(r#"{{"ev":"done","case":"{name}","elapsed":{took:.9},"expect":{expect:.9}}}"#);
}

async fn interval(nominal: Duration) {
    let mut ticks = time::interval(nominal / 5);
    for _ in 0..6 {
        ticks.tick().await; // the first is at once
    }
}

async fn timeout(nominal: Duration) {
    let never = std::future::pending::<()>();
    assert!(time::timeout(nominal, never).await.is_err());
}

async fn socket(nominal: Duration) {
    let udp = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bind");
    let mut buf = [0; 8];
    assert!(time::timeout(nominal, udp.recv(&mut buf)).await.is_err());
}

async fn process(nominal: Duration) {
    let mut child = tokio::process::Command::new("sleep")
        .arg("1000")
        .kill_on_drop(true)
        .spawn()
        .expect("spawn");
    assert!(time::timeout(nominal, child.wait()).await.is_err());
}

async fn many(nominal: Duration) {
    let tasks: Vec<_> = (0..1000)
        .map(|_| tokio::spawn(time::sleep(nominal)))
        .collect();
    for task in tasks {
        task.await.expect("task");
    }
}

#[tokio::main]
async fn main() {
    let ns = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let nominal = Duration::from_nanos(ns.expect("argument: nanoseconds"));
    item("sleep", nominal, || time::sleep(nominal)).await;
    item("sleep_until", nominal, || time::sleep_until(time::Instant::now() + nominal)).await;
    item("interval", nominal, || interval(nominal)).await;
    item("timeout", nominal, || timeout(nominal)).await;
    item("udp", nominal, || socket(nominal)).await;
    item("process", nominal, || process(nominal)).await;
    item("tasks", nominal, || many(nominal)).await;
    item("std-sleep", nominal, || async { std::thread::sleep(nominal) }).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let year = 1970 + now.as_secs() / 31_556_952;
    println!(r#"{{"ev":"year","year":{year}}}"#);
    println!(r#"{{"ev":"end"}}"#);
}
