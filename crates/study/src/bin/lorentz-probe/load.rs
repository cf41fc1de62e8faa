//! Loads of Kirova et al. 2019, section 2.2.3. A load ends when the program's input ends.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

const THREADS: u32 = 100;
const BLOCK: usize = 1 << 20;

/// Puts the machine under a load until the standard input ends. Files go to `folder`.
pub fn run(kind: &str, folder: &Path) -> io::Result<()> {
    match kind {
        "cpu" => {
            for number in 0..THREADS {
                thread::spawn(move || square_roots(f64::from(number)));
            }
        }
        "io" => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let sender = TcpStream::connect(listener.local_addr()?)?;
            let (receiver, _) = listener.accept()?;
            thread::spawn(move || send(sender));
            thread::spawn(move || receive(receiver));
            let path = folder.join("load");
            thread::spawn(move || write_and_sync(&path));
        }
        _ => return Err(io::Error::other(format!("load {kind}: expected cpu or io"))),
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

fn square_roots(start: f64) {
    let mut value = start + 2.0;
    loop {
        value = black_box((value + 1.0).sqrt());
    }
}

fn send(mut stream: TcpStream) -> io::Result<()> {
    let block = vec![0; BLOCK];
    loop {
        stream.write_all(&block)?;
    }
}

fn receive(mut stream: TcpStream) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    while stream.read(&mut block)? > 0 {}
    Ok(())
}

fn write_and_sync(path: &Path) -> io::Result<()> {
    let block = vec![0x5a; BLOCK];
    loop {
        let mut file = File::create(path)?;
        file.write_all(&block)?;
        file.sync_all()?;
    }
}
