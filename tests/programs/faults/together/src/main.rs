//! `together THREADS TIMES`: so many threads sleep for a millisecond behind a barrier and end together, so many times. Each gives its
//! small alternate signal stack back, as every thread of Rust's does.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (threads, times): (usize, usize) =
        (words.next().expect("THREADS"), words.next().expect("TIMES"));
    for _ in 0..times {
        let barrier = Arc::new(Barrier::new(threads));
        let sleep = || {
            let barrier = barrier.clone();
            thread::spawn(move || {
                barrier.wait();
                thread::sleep(Duration::from_millis(1));
            })
        };
        let all: Vec<_> = (0..threads).map(|_| sleep()).collect();
        all.into_iter().for_each(|one| one.join().expect("it ended well"));
    }
    println!("{{\"ev\":\"done\",\"threads\":{threads},\"times\":{times}}}");
}
