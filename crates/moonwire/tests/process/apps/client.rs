//! A client of the services, on tungstenite.

use std::net::TcpStream;

use serde_json::Value;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, HandshakeError, Message, WebSocket};

use super::cbor;
use crate::harness::{PATIENCE, Server};

pub(crate) struct Client(WebSocket<TcpStream>);

impl Client {
    pub(crate) fn connect(server: &Server, target: &str) -> Self {
        Self::offering(server, target, None)
    }

    /// Of a service with a subprotocol, which the server sends whether it is offered or not.
    pub(crate) fn offering(server: &Server, target: &str, subprotocol: Option<&str>) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://{}{target}", server.address());
        let mut request = url.into_client_request().unwrap();
        if let Some(name) = subprotocol {
            let name = name.parse().unwrap();
            request.headers_mut().insert("Sec-WebSocket-Protocol", name);
        }
        let (socket, _) = tungstenite::client(request, stream).unwrap();
        Self(socket)
    }

    /// With a `Cookie`, and what the server wants kept as one; or the status and the body of what
    /// it answers instead.
    pub(crate) fn with_cookie(
        server: &Server,
        target: &str,
        cookie: &str,
    ) -> Result<(Self, Option<String>), (u16, String)> {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://{}{target}", server.address());
        let mut request = url.into_client_request().unwrap();
        let cookie = cookie.parse().unwrap();
        request.headers_mut().insert("Cookie", cookie);
        match tungstenite::client(request, stream) {
            Ok((socket, response)) => {
                let cookie = response.headers().get("set-cookie");
                let cookie = cookie.map(|value| value.to_str().unwrap().to_owned());
                Ok((Self(socket), cookie))
            }
            Err(HandshakeError::Failure(tungstenite::Error::Http(response))) => {
                let body = response.body().clone().unwrap_or_default();
                Err((response.status().as_u16(), String::from_utf8(body).unwrap()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    /// Sends JSON as text.
    pub(crate) fn say(&mut self, message: Value) {
        self.send_text(&message.to_string());
    }

    /// The next message, which is JSON in text.
    pub(crate) fn hear(&mut self) -> Value {
        let message = self.0.read().unwrap();
        let text = message.to_text().unwrap();
        assert!(message.is_text(), "{message:?}");
        serde_json::from_str(text).unwrap()
    }

    pub(crate) fn send_binary(&mut self, bytes: Vec<u8>) {
        self.0.send(Message::binary(bytes)).unwrap();
    }

    /// The next message, which is binary.
    pub(crate) fn hear_binary(&mut self) -> Vec<u8> {
        let message = self.0.read().unwrap();
        assert!(message.is_binary(), "{message:?}");
        message.into_data().to_vec()
    }

    /// The code with which the server closes now.
    pub(crate) fn close_code(&mut self) -> u16 {
        let message = self.0.read().unwrap();
        let Message::Close(Some(frame)) = message else {
            panic!("no close: {message:?}");
        };
        frame.code.into()
    }

    /// Sends a message of the LAppS protocol.
    pub(crate) fn tell(&mut self, message: &Value) {
        self.send_binary(cbor::encode(message));
    }

    /// The next message of the LAppS protocol, or the code with which the server closes.
    pub(crate) fn listen(&mut self) -> Result<Value, u16> {
        let message = self.0.read().unwrap();
        if let Message::Close(Some(frame)) = &message {
            return Err(frame.code.into());
        }
        assert!(message.is_binary(), "{message:?}");
        Ok(cbor::decode(&message.into_data()))
    }
}
