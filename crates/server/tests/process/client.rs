//! A client that nobody's protocol code helps: the point is to be independent of ours.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// One connection after its handshake.
pub(crate) struct Client {
    stream: TcpStream,
}

/// A response that is not 101.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn text(&self) -> &str {
        assert_eq!(self.opcode, TEXT, "{self:?}");
        std::str::from_utf8(&self.payload).unwrap()
    }

    /// The code of a close frame.
    pub(crate) fn code(&self) -> u16 {
        assert_eq!(self.opcode, CLOSE, "{self:?}");
        u16::from_be_bytes(self.payload[..2].try_into().unwrap())
    }
}

impl Client {
    /// Connects and upgrades.
    pub(crate) fn connect(address: SocketAddr, target: &str) -> Self {
        let (client, head) = Self::upgrade(address, target, "").expect("an upgrade");
        // RFC 6455, 1.3: the accept value of its example key.
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        client
    }

    /// Asks for an upgrade with more header lines; what else the server answers is an error.
    pub(crate) fn upgrade(
        address: SocketAddr,
        target: &str,
        headers: &str,
    ) -> Result<(Self, String), Response> {
        let mut client = Self::open(address);
        client.write(
            format!(
                "GET {target} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Version: 13\r\n{headers}\r\n"
            )
            .as_bytes(),
        );
        let head = client.head();
        match status(&head) {
            101 => Ok((client, head)),
            _ => Err(client.response(head)),
        }
    }

    /// A plain GET on a connection of its own.
    pub(crate) fn get(address: SocketAddr, target: &str) -> Response {
        Self::request(address, "GET", target)
    }

    /// A plain request on a connection of its own.
    pub(crate) fn request(address: SocketAddr, method: &str, target: &str) -> Response {
        let mut client = Self::open(address);
        client.write(format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
        let head = client.head();
        client.response(head)
    }

    /// A connection without a handshake.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self { stream }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Writes as much as the server takes before it ends the connection.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            let is_end = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(is_end.contains(&error.kind()), "{error}");
        }
    }

    /// Sends one masked frame.
    pub(crate) fn send(&mut self, opcode: u8, payload: &[u8]) {
        let bytes = frame(opcode, payload);
        self.write(&bytes);
    }

    /// Sends something once what was sent before has most likely been read.
    pub(crate) fn send_rest_late(&mut self, bytes: &[u8]) {
        std::thread::sleep(Duration::from_millis(20));
        self.write(bytes);
    }

    /// The same connection, for another thread.
    pub(crate) fn again(&self) -> Self {
        let stream = self.stream.try_clone().unwrap();
        Self { stream }
    }

    /// The next byte, whatever it is.
    pub(crate) fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    /// Sends a text and returns the next frame.
    pub(crate) fn ask(&mut self, text: &str) -> Frame {
        self.send(TEXT, text.as_bytes());
        self.receive()
    }

    /// The next frame, which is a whole message: servers fragment only where they are told to.
    pub(crate) fn receive(&mut self) -> Frame {
        let (fin, frame) = self.receive_fragment();
        assert!(fin, "{frame:?} is not whole");
        frame
    }

    /// The next frame, and whether it is the last one of its message.
    pub(crate) fn receive_fragment(&mut self) -> (bool, Frame) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[0] & 0x70, 0, "no reserved bit");
        assert_eq!(head[1] & 0x80, 0, "a server does not mask");
        let length = match head[1] {
            126 => u64::from(u16::from_be_bytes(self.take())),
            127 => u64::from_be_bytes(self.take()),
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        let frame = Frame {
            opcode: head[0] & 0x0f,
            payload,
        };
        (head[0] & 0x80 != 0, frame)
    }

    /// Whether the server ends the connection with FIN; a reset is false.
    pub(crate) fn is_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    /// Whether the server still has something to say; false after FIN or RST.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(1))
    }

    /// The first line of a response.
    pub(crate) fn status_line(&mut self) -> String {
        self.head().lines().next().unwrap().to_owned()
    }

    /// Closes in order: close frame, answer, end.
    pub(crate) fn close(mut self) {
        self.send(CLOSE, &1000u16.to_be_bytes());
        loop {
            let frame = self.receive();
            if frame.opcode == CLOSE {
                assert_eq!(frame.code(), 1000);
                break;
            }
        }
        assert!(self.is_ended());
    }

    /// Ends with RST.
    pub(crate) fn reset(self) {
        let socket = socket2::Socket::from(self.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Sends no more, and goes on receiving.
    pub(crate) fn end_sending(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends with FIN and no close frame.
    pub(crate) fn end(self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
        drop(self);
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.take::<1>());
        }
        String::from_utf8(head).unwrap()
    }

    fn response(mut self, head: String) -> Response {
        let mut body = Vec::new();
        match self.stream.read_to_end(&mut body) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        Response {
            status: status(&head),
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }
}

/// One masked frame with FIN.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(
        payload
            .iter()
            .enumerate()
            .map(|(i, byte)| byte ^ MASK[i % 4]),
    );
    bytes
}

fn status(head: &str) -> u16 {
    head.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{head}"))
}

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
