//! Client and server over loopback, and the effects that strangers have on the server.

use lorentz_bandwidth::wire::{frame, hex, Control, Header, ToClient, ToServer, Token};
use lorentz_bandwidth::{
    BitRate, Client, Options, PacingTimers, Path, Server, StreamPlan, MAX_SESSIONS,
};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a server on a port of its own, for the rest of the test.
fn server(token: Option<&str>, idle: Duration) -> SocketAddr {
    let token = token.and_then(Token::new);
    let server = Server::bind(([127, 0, 0, 1], 0).into(), token).unwrap().idle_after(idle);
    let address = server.address().unwrap();
    thread::spawn(move || server.serve(|_, _| {}));
    address
}

fn options(token: Option<&str>) -> Options {
    Options {
        token: token.and_then(Token::new),
        rate_max: BitRate(100_000_000),
        timers: PacingTimers::Precise,
        fifo: false,
        most_bytes: Some(1500),
    }
}

const PLAN: StreamPlan = StreamPlan { packets: 50, bytes: 1000, interval: 100_000, rest: 0 };

#[test]
fn probes_come_back_with_their_times() {
    let mut client = Client::connect(server(None, TIMEOUT), &options(None)).unwrap();
    // In one of the attempts the first packet is not delayed; a delay makes the stream shorter.
    let mut longest = 0;
    for _ in 0..3 {
        let stream = client.probe(&PLAN).unwrap();
        assert_eq!((stream.probes.len(), stream.lost(), stream.reordered), (50, 0, 0));
        let sent = stream.probes[49].sent - stream.probes[0].sent;
        longest = longest.max(sent);
        let received: Vec<i64> = stream.probes.iter().filter_map(|probe| probe.received).collect();
        assert!(received.windows(2).all(|pair| pair[0] <= pair[1]));
        // Sender and receiver have one clock here, apart from NTP: 5 ms are 5 ms.
        let took = received[49] - received[0];
        assert!(took > sent / 2, "sent in {sent} ns, received in {took}");
    }
    assert!(longest >= 49 * 100_000 * 9 / 10, "{longest}");
}

#[test]
fn the_longest_stream_goes_through() {
    let mut client = Client::connect(server(None, TIMEOUT), &options(None)).unwrap();
    let packets = client.limits().most_packets;
    let stream =
        client.probe(&StreamPlan { packets, bytes: 100, interval: 5_000, rest: 0 }).unwrap();
    assert_eq!(stream.probes.len(), packets as usize);
    assert!(stream.loss() < 0.5, "{}", stream.loss());
}

#[test]
fn only_those_with_the_token_are_served() {
    let address = server(Some("secret"), TIMEOUT);
    assert!(Client::connect(address, &options(Some("secret"))).is_ok());
    for (token, why) in [(Some("Secret"), "wrong token"), (None, "none was given")] {
        let error = Client::connect(address, &options(token)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // A client with a token is served by a server that requires none.
    assert!(Client::connect(server(None, TIMEOUT), &options(Some("secret"))).is_ok());
}

/// Begins a session by hand, up to the server's `Ready`.
fn session(address: SocketAddr) -> (Control, u16, u64) {
    let mut control = Control::new(TcpStream::connect(address).unwrap()).unwrap();
    let _: ToClient = control.receive(4096, TIMEOUT).unwrap();
    control.send(&ToServer::Proof { mac: String::new() }).unwrap();
    match control.receive(4096, TIMEOUT).unwrap() {
        ToClient::Ready { port, session, .. } => (control, port, session),
        other => panic!("{other:?}"),
    }
}

fn refused(control: &mut Control) -> String {
    match control.receive(1 << 20, TIMEOUT) {
        Ok(ToClient::Refused { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_not_asked_for_ends_the_session() {
    let address = server(None, TIMEOUT);
    for (message, why) in [
        (ToServer::End { number: 1 }, "not asked for"),
        (ToServer::Proof { mac: hex(&[0; 32]) }, "not asked for"),
        (ToServer::Stream { number: 1, packets: u32::MAX }, "2 to 20000"),
        (ToServer::Stream { number: 1, packets: 0 }, "2 to 20000"),
    ] {
        let (mut control, ..) = session(address);
        control.send(&message).unwrap();
        let refusal = refused(&mut control);
        assert!(refusal.contains(why), "{message:?}: {refusal}");
    }
}

#[test]
fn only_announced_probes_of_this_session_count_and_each_once() {
    let (mut control, port, session) = session(server(None, TIMEOUT));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.send(&ToServer::Stream { number: 7, packets: 3 }).unwrap();
    assert_eq!(control.receive::<ToClient>(4096, TIMEOUT).unwrap(), ToClient::Armed { number: 7 });
    let good = Header { session, stream: 7, number: 0 };
    for header in [
        good,
        good,
        Header { session: session ^ 1, ..good },
        Header { stream: 6, ..good },
        Header { number: 3, ..good },
        Header { number: u32::MAX, ..good },
        Header { number: 2, ..good },
    ] {
        socket.send_to(&header.bytes(), ("127.0.0.1", port)).unwrap();
    }
    socket.send_to(b"hello", ("127.0.0.1", port)).unwrap();
    control.send(&ToServer::End { number: 7 }).unwrap();
    let ToClient::Arrivals { probes, .. } = control.receive(1 << 20, TIMEOUT).unwrap() else {
        panic!("no arrivals");
    };
    assert_eq!(probes.iter().map(|probe| probe.0).collect::<Vec<u32>>(), [0, 2]);
    // The server answers no probe: it sends nothing to an address that did not ask for it over TCP.
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 8]).is_err());
}

#[test]
fn idle_and_slow_sessions_end_and_others_get_their_place() {
    // All of them have time to come before the first one has to go.
    let idle = Duration::from_secs(2);
    let address = server(None, idle);
    let mut sessions: Vec<_> = (0..MAX_SESSIONS).map(|_| session(address)).collect();
    let error = Client::connect(address, &options(None)).unwrap_err().to_string();
    assert!(error.contains("too many"), "{error}");
    // A single byte now and then is no message.
    let (slow, ..) = &mut sessions[0];
    let start = Instant::now();
    let mut stream = slow.stream().try_clone().unwrap();
    while start.elapsed() < idle + Duration::from_millis(500) {
        let _ = stream.write(&[0]);
        thread::sleep(Duration::from_millis(100));
    }
    for (control, ..) in &mut sessions[1..] {
        assert!(refused(control).contains("in time"));
    }
    let until = Instant::now() + TIMEOUT;
    while Client::connect(address, &options(None)).is_err() {
        assert!(Instant::now() < until, "no place became free");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_message_that_is_too_long_is_not_waited_for() {
    let mut stream = TcpStream::connect(server(None, TIMEOUT)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let start = Instant::now();
    let mut output = Vec::new();
    let _ = stream.read_to_end(&mut output);
    assert!(start.elapsed() < Duration::from_secs(4) && output.len() < 4096);
}

#[derive(Clone, Debug)]
enum Hostile {
    Bytes(Vec<u8>),
    Framed(Vec<u8>),
    Message(ToServer),
}

fn hostile() -> impl Strategy<Value = Vec<Hostile>> {
    let number = any::<u32>();
    let one = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(Hostile::Bytes),
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(Hostile::Framed),
        ".{0,80}".prop_map(|mac| Hostile::Message(ToServer::Proof { mac })),
        (number, 0u32..100_000)
            .prop_map(|(number, packets)| Hostile::Message(ToServer::Stream { number, packets })),
        number.prop_map(|number| Hostile::Message(ToServer::End { number })),
    ];
    proptest::collection::vec(one, 0..6)
}

/// The server serves the next client after any input of a client, and after a connection that broke at any place.
#[test]
fn hostile_control_messages_harm_nobody_else() {
    let address = server(None, TIMEOUT);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
    let attack = |said: Vec<Hostile>| {
        let mut stream = TcpStream::connect(address).unwrap();
        for word in said {
            let bytes = match word {
                Hostile::Bytes(bytes) => bytes,
                Hostile::Framed(body) => [&(body.len() as u32).to_be_bytes(), &body[..]].concat(),
                Hostile::Message(message) => frame(&message).unwrap(),
            };
            // The server may have closed the connection already.
            let _ = stream.write_all(&bytes);
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
        Ok(())
    };
    runner.run(&hostile(), attack).unwrap();
    let until = Instant::now() + TIMEOUT;
    let mut client = loop {
        match Client::connect(address, &options(None)) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    assert_eq!(client.probe(&PLAN).unwrap().probes.len(), 50);
}
