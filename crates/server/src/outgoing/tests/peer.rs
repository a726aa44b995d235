//! A server by hand, for what ours never does.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use moonwire_proto::accept_key;

/// A server for one connection, in a thread of its own.
pub(super) struct RawPeer {
    pub(super) url: String,
    /// Dropped when a peer that stalls may go.
    release: Sender<()>,
    thread: JoinHandle<(String, Vec<u8>)>,
}

/// What it does.
#[derive(Clone, Copy)]
pub(super) enum Manner {
    /// It does not answer the request, and reads until the client ends the stream.
    Silent,
    /// It upgrades, sends these bytes and ends the stream.
    Leave(&'static [u8]),
    /// It upgrades, sends these bytes and reads until the client ends the stream.
    Listen(&'static [u8]),
    /// It upgrades and reads nothing until the test is over.
    Stall,
}

impl RawPeer {
    pub(super) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/raw?token=1", listener.local_addr().unwrap());
        let (release, released) = channel();
        let serve = move || serve(&listener.accept().unwrap().0, manner, &released);
        Self {
            url,
            release,
            thread: thread::spawn(serve),
        }
    }

    /// The head of the request, and all that came behind it.
    pub(super) fn finish(self) -> (String, Vec<u8>) {
        drop(self.release);
        self.thread.join().unwrap()
    }
}

fn serve(mut stream: &TcpStream, manner: Manner, released: &Receiver<()>) -> (String, Vec<u8>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let response = response(&head);
    let mut rest = Vec::new();
    match manner {
        Manner::Silent => read(stream, &mut rest),
        Manner::Leave(frames) => stream.write_all(&[&response, frames].concat()).unwrap(),
        Manner::Listen(frames) => {
            stream.write_all(&[&response, frames].concat()).unwrap();
            read(stream, &mut rest);
        }
        Manner::Stall => {
            stream.write_all(&response).unwrap();
            // Nothing is ever sent: it ends when the other side is dropped, or too late.
            assert!(released.recv_timeout(PATIENCE).is_err());
        }
    }
    (head, rest)
}

fn read(mut stream: &TcpStream, rest: &mut Vec<u8>) {
    if let Err(error) = stream.read_to_end(rest) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

fn response(request: &str) -> Vec<u8> {
    let key = request.split("Sec-WebSocket-Key: ").nth(1).unwrap();
    let accept = accept_key(key.lines().next().unwrap());
    let accept = std::str::from_utf8(&accept).unwrap();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
    .into_bytes()
}

/// The payload of the first frame that a client sent, which is short, and its opcode.
pub(super) fn first_frame(bytes: &[u8]) -> (u8, Vec<u8>) {
    let [head, length, mask @ ..] = bytes.first_chunk::<6>().unwrap();
    let length = usize::from(length & 0x7f);
    assert!(length < 126 && bytes.len() >= 6 + length, "{bytes:x?}");
    let payload = bytes[6..6 + length].iter().zip(mask.iter().cycle());
    (
        head & 0x0f,
        payload.map(|(byte, mask)| byte ^ mask).collect(),
    )
}

const PATIENCE: Duration = Duration::from_secs(20);
