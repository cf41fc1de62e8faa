//! Questions about sockets to the kernel (sock_diag(7)), through one netlink socket that stays open.

use std::io;

use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_DUMP, NLM_F_REQUEST,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::Socket;

/// The netlink socket, opened at the first question.
#[derive(Default)]
pub struct Netlink {
    socket: Option<Socket>,
    asked: u32,
    answer: Vec<u8>,
}

impl Netlink {
    /// Asks for all sockets that match `request`, and hands each answer to `each`.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer.
    pub fn dump(
        &mut self,
        request: SockDiagMessage,
        each: impl FnMut(SockDiagMessage),
    ) -> io::Result<()> {
        self.ask(request, true, each)
    }

    /// Asks for one socket. `None` if there is no such socket.
    pub fn one(&mut self, request: SockDiagMessage) -> Option<SockDiagMessage> {
        let mut found = None;
        self.ask(request, false, |answer| found = Some(answer)).ok()?;
        found
    }

    fn ask(
        &mut self,
        request: SockDiagMessage,
        all: bool,
        each: impl FnMut(SockDiagMessage),
    ) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
                socket.bind_auto()?;
                socket
            }
        };
        self.asked = self.asked.wrapping_add(1);
        send(&socket, request, self.asked, all)?;
        let understood = receive(&socket, &mut self.answer, self.asked, all, each)?;
        // The socket is kept only if the whole answer has been received. Otherwise the next question opens another one.
        self.socket = Some(socket);
        understood
    }
}

fn send(socket: &Socket, request: SockDiagMessage, number: u32, all: bool) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | if all { NLM_F_DUMP } else { 0 };
    header.sequence_number = number;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0).map(drop)
}

/// Receives the answers to question `number`. The inner result is the kernel's, the outer one that of the receiving.
fn receive(
    socket: &Socket,
    answer: &mut Vec<u8>,
    number: u32,
    all: bool,
    mut each: impl FnMut(SockDiagMessage),
) -> io::Result<io::Result<()>> {
    const BUFFER_LEN: usize = 64 * 1024;
    answer.reserve(BUFFER_LEN);
    loop {
        answer.clear();
        socket.recv(answer, 0)?;
        let mut rest = &answer[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                .map_err(|error| io::Error::other(error.to_string()))?;
            if message.header.sequence_number != number {
                return Err(io::Error::other("an answer to another question"));
            }
            let length = (message.header.length as usize).next_multiple_of(4);
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => {
                    each(inner);
                    if !all {
                        return Ok(Ok(()));
                    }
                }
                NetlinkPayload::Done(_) => return Ok(Ok(())),
                NetlinkPayload::Error(error) => return Ok(Err(error.to_io())),
                _ => {}
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}
