//! What the driver tells, taken apart.

use std::io;

use moonwire_net::{Completion, Driver, ReceiveBuffer, Session, SessionEvent, SocketId, Time};
use moonwire_proto::{CloseCode, Response};

use super::{Stage, Worker};
use crate::audience::SUBSCRIBED;
use crate::client::{State, Upgrade};

/// What an event means for its client, once nothing of it is borrowed any more.
enum Consequence {
    /// The connection is over.
    Ended {
        /// The code to be counted if the connection was up.
        code: u16,
        /// The error to be counted, unless this end wanted it to be over.
        error: Option<String>,
    },
    /// The handshake is over.
    Upgraded(Upgrade),
    /// The connection hears from now on what is published.
    Subscribed,
}

impl<D: Driver> Worker<D> {
    /// Takes completions, a bounded number per turn: those left are stamped in the next one.
    pub(super) fn receive_turn(&mut self) {
        let mut freshness = Freshness::default();
        for _ in 0..COMPLETIONS_PER_TURN {
            let Some(completion) = self.driver.next() else {
                return;
            };
            if let Completion::Received { buffer, .. } = &completion
                && freshness.is_used_up(buffer.len())
            {
                self.now_ns = self.read_clock();
            }
            let now = Time::from_nanos(self.now_ns);
            match completion {
                Completion::Received { socket, buffer } => self.received(socket, buffer),
                Completion::Connected { socket, result } => {
                    let connected = self.driver.now();
                    self.tell(socket, |session| session.on_connected(result, connected));
                }
                Completion::Blocked { socket, bytes } => self.tell(socket, |session| {
                    session.on_blocked(bytes);
                    None
                }),
                Completion::Sent {
                    socket,
                    buffer,
                    result,
                } => self.sent(socket, buffer, result),
                Completion::EndOfStream { socket } => {
                    self.tell(socket, |session| session.on_end_of_stream(now));
                }
                Completion::Failed { socket, error } => {
                    self.tell(socket, |session| session.on_failed(error));
                }
                Completion::Accepted { socket, .. } => self.driver.close(socket),
                Completion::AcceptFailed { .. }
                | Completion::Detached { .. }
                | Completion::Woken => {}
            }
        }
    }

    /// Acts on the deadlines that have passed.
    pub(super) fn expire_timers(&mut self) {
        let now = Time::from_nanos(self.now_ns);
        while let Some(index) = self.timers.expired(now) {
            let client = &mut self.clients[index as usize];
            if let State::Retrying { .. } = client.state {
                self.retry(index);
                continue;
            }
            let Some(session) = &mut client.session else {
                continue;
            };
            if client.subscribing.is_some() && session.is_open() {
                self.desk.tally.error(NOT_SUBSCRIBED);
                session.abort();
                self.flush(index);
                continue;
            }
            let untaken_bytes = self.driver.untaken_bytes(session.socket());
            let event = session.on_deadline(untaken_bytes, now);
            let consequence = event.and_then(consequence);
            self.apply(index, consequence);
            self.flush(index);
        }
    }

    /// Flushes the clients that were not flushed with their sends.
    pub(super) fn flush_touched(&mut self) {
        while let Some(index) = self.desk.touched.pop() {
            if self.clients[index as usize].track.touched {
                self.flush(index);
            }
        }
    }

    fn received(&mut self, socket: SocketId, mut buffer: ReceiveBuffer) {
        if let Some(index) = self.client_of(socket) {
            self.desk.tally.counters.bytes_received += buffer.len() as u64;
            let (upgraded, ended) = self.read(index, &mut buffer);
            let client = &mut self.clients[index as usize];
            self.desk.touch(index, &mut client.track);
            self.apply(index, upgraded);
            self.leave_if_done(index);
            self.apply(index, ended);
        }
        self.driver.recycle(buffer);
    }

    /// Takes every message of the bytes; gives what else happened, in that order.
    fn read(
        &mut self,
        index: u32,
        buffer: &mut [u8],
    ) -> (Option<Consequence>, Option<Consequence>) {
        let now = Time::from_nanos(self.now_ns);
        let at_ns = self.now_ns + self.plan.link_delay_ns;
        let (mut upgraded, mut ended) = (None, None);
        let client = &mut self.clients[index as usize];
        let Some(session) = &mut client.session else {
            return (None, None);
        };
        let mut input = match session.open(buffer, &mut self.plaintext) {
            Ok(input) => input,
            Err(error) => {
                let error = Some(error.to_string());
                return (
                    None,
                    Some(Consequence::Ended {
                        code: ABNORMAL,
                        error,
                    }),
                );
            }
        };
        while let Some(event) = session.poll(&mut input, now) {
            if let SessionEvent::Message { opcode, payload } = event {
                if client.subscribing.is_some() && payload == SUBSCRIBED {
                    upgraded = Some(Consequence::Subscribed);
                    continue;
                }
                let place = (index, client.number);
                self.desk.take_message(
                    &self.plan,
                    place,
                    &mut client.track,
                    opcode,
                    payload,
                    at_ns,
                );
                continue;
            }
            match consequence(event) {
                consequence @ Some(Consequence::Upgraded(_) | Consequence::Subscribed) => {
                    upgraded = consequence;
                }
                consequence @ Some(Consequence::Ended { .. }) => ended = consequence,
                None => {}
            }
        }
        (upgraded, ended)
    }

    fn sent(&mut self, socket: SocketId, buffer: Vec<u8>, result: io::Result<()>) {
        let now = Time::from_nanos(self.now_ns);
        self.tell(socket, |session| session.on_sent(buffer, result, now));
        if let Some(index) = self.client_of(socket) {
            // What waited for room goes first into the socket, then the next message is due.
            self.flush(index);
            self.release_parked(index);
            let track = &mut self.clients[index as usize].track;
            self.desk.unblock(index, track, self.now_ns);
        }
    }

    fn tell(
        &mut self,
        socket: SocketId,
        tell: impl FnOnce(&mut Session) -> Option<SessionEvent<'_>>,
    ) {
        let Some(index) = self.client_of(socket) else {
            return;
        };
        let client = &mut self.clients[index as usize];
        let Some(session) = &mut client.session else {
            return;
        };
        let consequence = tell(session).and_then(consequence);
        self.desk.touch(index, &mut client.track);
        self.apply(index, consequence);
    }

    fn apply(&mut self, index: u32, consequence: Option<Consequence>) {
        match consequence {
            None => {}
            Some(Consequence::Upgraded(upgrade)) if self.plan.programme.is_some() => {
                self.subscribe(index, upgrade);
            }
            Some(Consequence::Upgraded(upgrade)) => self.upgraded(index, &upgrade),
            Some(Consequence::Subscribed) => self.subscribed(index),
            Some(Consequence::Ended { error: Some(_), .. }) if self.is_silent_and_up(index) => {
                self.desk.tally.counters.silent_cut += 1;
                self.end(index);
            }
            Some(Consequence::Ended { code, error }) => {
                let state = self.clients[index as usize].state;
                if matches!(state, State::Up | State::Leaving) {
                    self.desk.tally.closed(code);
                }
                if let Some(mut sentence) = error.filter(|_| self.stage != Stage::Closing) {
                    if code == PROTOCOL_ERROR && !self.plan.scenario.masked {
                        sentence.push_str(" (frames were sent without a mask)");
                    }
                    self.desk.tally.error(&sentence);
                }
                self.end(index);
            }
        }
    }
}

/// How much was received since the clock was read. The driver reads a socket when it is asked for
/// the completion, so that what it gives late in a turn may have come long after its beginning.
#[derive(Debug, Default)]
struct Freshness {
    buffers: usize,
    /// The buffer before was large, and took long to be read and checked.
    was_large: bool,
}

impl Freshness {
    /// Notes a buffer; true when the clock is to be read again for it.
    fn is_used_up(&mut self, bytes: usize) -> bool {
        let is_large = bytes > LARGE_BYTES;
        let used_up = self.buffers == BUFFERS_PER_STAMP || self.was_large || is_large;
        self.buffers = if used_up { 1 } else { self.buffers + 1 };
        self.was_large = is_large;
        used_up
    }
}

/// What an event means, other than a message.
fn consequence(event: SessionEvent<'_>) -> Option<Consequence> {
    let (code, error) = match event {
        SessionEvent::Upgraded { response, timings } => {
            return Some(Consequence::Upgraded(Upgrade {
                timings,
                is_compressed: response.deflate().is_some(),
            }));
        }
        SessionEvent::Refused { status, response } => (ABNORMAL, Some(refusal(status, &response))),
        SessionEvent::Closed {
            code,
            reason,
            local,
        } => {
            let code = code.map_or(NO_CODE, CloseCode::as_u16);
            (code, (!local).then(|| farewell(code, reason)))
        }
        SessionEvent::Failed(error) => (ABNORMAL, Some(error.to_string())),
        SessionEvent::Request(_)
        | SessionEvent::Message { .. }
        | SessionEvent::More
        | SessionEvent::Ping(_)
        | SessionEvent::Pong { .. } => return None,
    };
    Some(Consequence::Ended { code, error })
}

/// An answer that is no upgrade, with the versions that the server speaks instead, if it says so.
fn refusal(status: u16, response: &Response) -> String {
    let versions = response.headers().all("sec-websocket-version");
    let versions: Vec<String> = versions.map(|it| it.escape_debug().to_string()).collect();
    let sentence = format!("the server answered {status} instead of an upgrade");
    match versions.join(", ") {
        versions if versions.is_empty() => sentence,
        versions => format!("{sentence}: it speaks version {versions} of WebSocket"),
    }
}

/// A close of the server with the reason it gave. The reason is the peer's text: what is not to be
/// shown on a terminal is escaped.
fn farewell(code: u16, reason: &str) -> String {
    match reason {
        "" => format!("the server closed with {code}"),
        reason => format!("the server closed with {code}: {}", reason.escape_debug()),
    }
}

const NOT_SUBSCRIBED: &str = "the server did not answer `subscribe` with `subscribed` in time";
/// About 3 us each, so that what is due waits some 200 us at most.
const COMPLETIONS_PER_TURN: usize = 64;
/// Small buffers that share a stamp, which is at most some 25 us old then.
const BUFFERS_PER_STAMP: usize = 8;
/// A larger buffer has a stamp of its own.
const LARGE_BYTES: usize = 4096;
/// A peer broke the protocol (RFC 6455, 7.4.1).
const PROTOCOL_ERROR: u16 = 1002;
/// A close frame without a code (RFC 6455, 7.1.5).
const NO_CODE: u16 = 1005;
/// No close frame at all (RFC 6455, 7.1.5).
const ABNORMAL: u16 = 1006;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_of_the_server_comes_with_its_reason() {
        assert_eq!(farewell(1011, ""), "the server closed with 1011");
        assert_eq!(
            farewell(1008, "too\u{1b}[31m fast"),
            "the server closed with 1008: too\\u{1b}[31m fast"
        );
    }

    #[test]
    fn a_stamp_is_shared_by_a_few_small_buffers_only() {
        let stamps = |sizes: &[usize]| {
            let mut freshness = Freshness::default();
            let reads = sizes.iter().map(|&bytes| freshness.is_used_up(bytes));
            reads.collect::<Vec<bool>>()
        };
        let reads: Vec<usize> = stamps(&[100; 25])
            .into_iter()
            .enumerate()
            .filter_map(|(index, read)| read.then_some(index))
            .collect();
        assert_eq!(reads, [8, 16, 24]);
        assert_eq!(
            stamps(&[100, 4097, 100, 4096, 100]),
            [false, true, true, false, false]
        );
    }
}
