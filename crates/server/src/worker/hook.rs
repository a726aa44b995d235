//! The handshake as a service answers it: `onHandshake`, between the request and the 101.

use moonwire_lua::{Effects, HandshakeAnswer, HandshakeRefusal};
use moonwire_net::{Driver, SocketId};
use moonwire_proto::{BuildError, refusal};

use super::Desk;
use super::connections::Stage;
use super::resident::Greeting;
use super::scripts::{Place, Scripts};
use crate::stats::HandshakeFailure;

/// How a request is accepted, as far as the service says.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// One that the request offers.
    pub(super) subprotocol: Option<String>,
    /// Fields of the 101 response.
    pub(super) headers: Vec<(String, String)>,
}

impl Desk {
    /// Asks the service at `place` about the request of this connection, if it wants to be asked.
    /// None: the request is answered.
    pub(super) fn ask_service(
        &mut self,
        socket: SocketId,
        place: Place,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
    ) -> Option<Opening> {
        let session = &self.connections.of_socket(socket)?.session;
        let request = session.request()?;
        let Some(greeting) = scripts.handshake(place, request, session.peer(), effects) else {
            return Some(Opening::default());
        };
        self.apply(place, effects, driver);
        if greeting == Greeting::Replaced {
            self.orphan(place);
        }
        // What was sent to others may have taken so much memory that this one was cut.
        let connection = self.connections.of_socket(socket)?;
        if connection.stage != Stage::Handshake {
            return None;
        }
        match greeting {
            Greeting::Answer(HandshakeAnswer::Accept {
                subprotocol,
                headers,
            }) => {
                return Some(Opening {
                    subprotocol,
                    headers,
                });
            }
            Greeting::Answer(HandshakeAnswer::Refuse(refusal)) => self.refuse(socket, &refusal),
            Greeting::Answer(HandshakeAnswer::DoesNotFit) => self.refuse_busy(socket),
            Greeting::Late => self.fail_handshake(socket, 503),
            Greeting::Failed | Greeting::Replaced => self.fail_handshake(socket, 500),
        }
        None
    }

    /// What the service has for an answer.
    fn refuse(&mut self, socket: SocketId, refusal: &HandshakeRefusal) {
        match response(refusal) {
            Ok(response) => {
                self.stats.handshake_failed(HandshakeFailure::Refused);
                self.end_handshake(socket, &response);
            }
            // The Lua room has looked at every field.
            Err(_) => self.fail_handshake(socket, 500),
        }
    }

    /// The service has failed; nobody is let in for that.
    fn fail_handshake(&mut self, socket: SocketId, status: u16) {
        let reason = Some(HandshakeFailure::HookFailed);
        self.reply(socket, status, &[], b"", reason);
    }
}

fn response(refused: &HandshakeRefusal) -> Result<Vec<u8>, BuildError> {
    let mut headers: Vec<(&str, &str)> = refused
        .headers
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let is_kind = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case("content-type");
    if !refused.body.is_empty() && !headers.iter().any(is_kind) {
        headers.push(("Content-Type", "text/plain; charset=utf-8"));
    }
    let response = refusal(refused.status, &headers, &refused.body)?;
    let Some(reason) = &refused.reason else {
        return Ok(response);
    };
    let end = response.iter().position(|byte| *byte == b'\r');
    let rest = response.get(end.unwrap_or_default()..).unwrap_or_default();
    let start = format!("HTTP/1.1 {} {reason}", refused.status);
    Ok([start.as_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_reason_of_the_service() {
        let mut refused = HandshakeRefusal {
            status: 401,
            reason: None,
            headers: vec![("WWW-Authenticate".to_owned(), "Basic".to_owned())],
            body: b"who?".to_vec(),
        };
        let text = |refused: &_| String::from_utf8(response(refused).unwrap()).unwrap();
        let rest = "\r\nConnection: close\r\nContent-Length: 4\r\nWWW-Authenticate: Basic\r\n\
                    Content-Type: text/plain; charset=utf-8\r\n\r\nwho?";
        assert_eq!(text(&refused), format!("HTTP/1.1 401 Unauthorized{rest}"));
        refused.reason = Some("Not You".to_owned());
        assert_eq!(text(&refused), format!("HTTP/1.1 401 Not You{rest}"));
        refused.headers[0].1.push_str("\r\nSet-Cookie: a=b");
        assert_eq!(response(&refused), Err(BuildError::HeaderValue));
    }
}
