//! Carrying a live connection to another driver, usually on another thread.

use std::io;

use super::Session;
use crate::descriptors::{Portal, PortalExit};
use crate::driver::{Driver, Transport};

/// A connection between two drivers: its descriptor, its TLS and protocol state, what was read and
/// not looked at, and what was to be sent. It can go to another thread. Dropping it closes it.
#[derive(Debug)]
pub struct DetachedSession {
    session: Session,
    transport: Transport,
    /// Wire bytes of a send that the old driver did not finish; they go out first.
    unsent: Vec<u8>,
}

impl Session {
    /// Takes the connection off its driver, for which `Completion::Detached` gave `transport` and
    /// `unsent`. The order: `Driver::detach`, then everything that still comes for the socket
    /// (bytes included, with [`keep`](Self::keep) for those that the next owner is to see), then
    /// this, with the `Detached` completion. Do not flush in between.
    pub fn detach(mut self, transport: Transport, unsent: Vec<u8>) -> DetachedSession {
        self.in_flight_bytes = 0;
        // These are submitted a second time.
        self.untaken_bytes = self.untaken_bytes.saturating_sub(unsent.len());
        DetachedSession {
            session: self,
            transport,
            unsent,
        }
    }

    /// Puts the connection on another driver and goes on where it was. Afterwards: `unread` and
    /// `poll` until None, for what was kept; then `flush`; then arm its deadline.
    pub fn attach<D: Driver>(detached: DetachedSession, driver: &mut D) -> io::Result<Self> {
        let DetachedSession {
            mut session,
            transport,
            unsent,
        } = detached;
        session.socket = driver.attach(transport)?;
        if session.is_paused {
            driver.pause_receive(session.socket);
        }
        if !unsent.is_empty() {
            session.submit(unsent, driver);
        }
        Ok(session)
    }
}

impl DetachedSession {
    /// Sends its socket to a thread with a table of descriptors of its own. The error is that there
    /// is no room; the connection is closed then.
    pub fn pass(self, portal: &Portal) -> io::Result<Self> {
        let transport = self.transport.pass(portal).map_err(|(_, error)| error)?;
        Ok(Self { transport, ..self })
    }

    /// Takes its socket out of the portal, if it came through one: before it is attached.
    pub fn arrive(self, exit: &mut PortalExit) -> io::Result<Self> {
        let transport = self.transport.arrive(exit)?;
        Ok(Self { transport, ..self })
    }

    /// The session, to be looked at: its peer, the request that waits for an answer.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

const _: () = {
    const fn must_be_send<T: Send>() {}
    must_be_send::<DetachedSession>();
};
