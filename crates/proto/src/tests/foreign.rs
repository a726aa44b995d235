//! The same bytes for us and for an implementation that nobody here wrote: both must hear the same.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as many;
use proptest::prelude::*;
use tokio_tungstenite::tungstenite::protocol::{self, CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket};

use super::pair::{End, Told};
use super::splits::{MESSAGE_BYTES_MAX, Script, role, said};
use crate::{CloseCode, Role};

/// A socket in memory.
#[derive(Default)]
pub(super) struct Wire {
    incoming: VecDeque<u8>,
    pub(super) outgoing: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.incoming.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The foreign end that listens to `speaker`.
pub(super) fn foreign(speaker: Role, bytes: &[u8]) -> WebSocket<Wire> {
    let wire = Wire {
        incoming: bytes.iter().copied().collect(),
        outgoing: vec![],
    };
    let role = match speaker {
        Role::Client => protocol::Role::Server,
        Role::Server => protocol::Role::Client,
    };
    let config = WebSocketConfig::default();
    let config = config
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocket::from_raw_socket(wire, role, Some(config))
}

/// What the foreign end is told, and why it failed.
pub(super) fn foreign_told(socket: &mut WebSocket<Wire>) -> (Vec<Told>, Option<Error>) {
    let mut told = vec![];
    loop {
        told.push(match socket.read() {
            Ok(Message::Text(text)) => Told::Text(text.to_string()),
            Ok(Message::Binary(bytes)) => Told::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Told::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Told::Pong(bytes.to_vec()),
            Ok(Message::Close(frame)) => {
                let reason = frame
                    .as_ref()
                    .map_or("", |frame| frame.reason.as_str())
                    .to_string();
                Told::Close(frame.map(|frame| frame.code.into()), reason)
            }
            Ok(Message::Frame(_)) => unreachable!("reads give messages"),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return (told, None);
            }
            Err(Error::ConnectionClosed) => return (told, None),
            Err(error) => return (told, Some(error)),
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_foreign_end_hears_what_we_say(speaker in role(), said in many(said(), 0..8)) {
        let script = Script::new(speaker, &said);
        let (told, error) = foreign_told(&mut foreign(speaker, &script.bytes));
        prop_assert_eq!((told, error.is_some()), (script.told, false));
    }
}

#[test]
fn we_hear_a_foreign_client_and_close_with_it() {
    let mut server = End::server();
    let mut client = foreign(Role::Server, &[]);
    client.send(Message::text("κόσμε")).unwrap();
    client.send(Message::binary(vec![7; 70_000])).unwrap();
    client.send(Message::Ping(b"?".as_slice().into())).unwrap();
    let code = CloseCode::NORMAL.as_u16().into();
    client
        .close(Some(CloseFrame {
            code,
            reason: "done".into(),
        }))
        .unwrap();
    let told = server.read(&client.get_ref().outgoing);
    let close = Told::Close(Some(1000), "done".to_string());
    let ping = Told::Ping(b"?".to_vec());
    assert!(
        told == [
            Told::Text("κόσμε".to_string()),
            Told::Binary(vec![7; 70_000]),
            ping,
            close
        ]
    );
    client.get_mut().incoming.extend(server.take_out());
    let close = Told::Close(Some(1000), "".to_string());
    let (told, error) = foreign_told(&mut client);
    assert_eq!(told, [Told::Pong(b"?".to_vec()), close]);
    assert!(error.is_none(), "{error:?}");
}
