//! One connection to another server.

use moonwire_lua::{ClientEvent, Handler};
use moonwire_net::{Input, Session, SessionEvent, Time};
use moonwire_proto::CloseCode;

/// Takes what is to be told to the service.
pub(super) type Tell<'a> = dyn FnMut(Handler, ClientEvent<'_>) + 'a;

/// A connection and what the service knows of it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) handler: Handler,
    pub(super) session: Session,
    /// Whether its end is still to be told.
    pub(super) is_known: bool,
    /// Whether it is to be flushed at the end of the turn.
    pub(super) is_touched: bool,
}

impl Link {
    /// Looks at received bytes up to the next thing to be told, and tells it; true if there was
    /// one. What is behind it is kept, and to be read before anything else is received.
    pub(super) fn read(&mut self, mut input: Input<'_>, now: Time, tell: &mut Tell<'_>) -> bool {
        let Self {
            session, is_known, ..
        } = self;
        while let Some(event) = session.poll(&mut input, now) {
            if announce(event, self.handler, is_known, tell) {
                session.keep(input);
                return true;
            }
        }
        let event = session.settle(now);
        event.is_some_and(|event| announce(event, self.handler, is_known, tell))
    }

    /// Does something that may give an event, and tells it; true if there was one.
    pub(super) fn happen(
        &mut self,
        happen: impl FnOnce(&mut Session) -> Option<SessionEvent<'_>>,
        tell: &mut Tell<'_>,
    ) -> bool {
        let event = happen(&mut self.session);
        event.is_some_and(|event| announce(event, self.handler, &mut self.is_known, tell))
    }
}

/// Tells what the service is to know of an event; true if it is anything.
fn announce(
    event: SessionEvent<'_>,
    handler: Handler,
    is_known: &mut bool,
    tell: &mut Tell<'_>,
) -> bool {
    let told = match event {
        SessionEvent::Upgraded { .. } => ClientEvent::Opened,
        SessionEvent::Message { opcode, payload } => ClientEvent::Message { opcode, payload },
        SessionEvent::Refused { status, .. } => ClientEvent::Failed {
            reason: format!("the server answered {status} instead of an upgrade"),
        },
        SessionEvent::Closed { code, reason, .. } => ClientEvent::Closed {
            payload: payload(code, reason),
        },
        SessionEvent::Failed(error) => ClientEvent::Failed {
            reason: error.to_string(),
        },
        SessionEvent::Request(_)
        | SessionEvent::More
        | SessionEvent::Ping(_)
        | SessionEvent::Pong { .. } => return false,
    };
    if !*is_known {
        return false;
    }
    *is_known = match told {
        ClientEvent::Opened | ClientEvent::Message { .. } => true,
        ClientEvent::Closed { .. } | ClientEvent::Failed { .. } => false,
    };
    tell(handler, told);
    true
}

/// A close frame's payload as it came.
fn payload(code: Option<CloseCode>, reason: &str) -> Vec<u8> {
    let code = code.map(|code| code.as_u16().to_be_bytes());
    let code = code.as_ref().map_or(&[][..], |code| &code[..]);
    [code, reason.as_bytes()].concat()
}
