//! What a callback asks the server to do.

use std::ops::Range;

use moonwire_proto::Opcode;

use crate::live::Handler;

/// One thing the server must do, in the order the service asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Send one message. A text payload is valid UTF-8.
    Send {
        /// The connection, live when the service asked.
        handler: Handler,
        /// Text or binary.
        opcode: Opcode,
        /// The message.
        payload: &'a [u8],
    },
    /// Start the closing handshake (RFC 6455, 7.1.2).
    Close {
        /// The connection, live when the service asked.
        handler: Handler,
        /// 1000 to 1003, 1007 to 1011 or 3000 to 4999.
        code: u16,
        /// At most 123 bytes.
        reason: &'a str,
    },
    /// Let the connection have what is sent on a channel, once more.
    Subscribe {
        /// The connection, live when the service asked.
        handler: Handler,
        /// A channel that exists.
        channel: u64,
    },
    /// Take one of its subscriptions back, if it has one.
    Unsubscribe {
        /// The connection, live when the service asked.
        handler: Handler,
        /// A channel that exists.
        channel: u64,
    },
    /// Send a binary message to all subscribers of a channel.
    Broadcast {
        /// A channel that exists.
        channel: u64,
        /// The message.
        payload: &'a [u8],
    },
}

/// Bounds on what one callback may ask for; at the bound `ws:send` returns `false` and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectLimits {
    /// Effects of one callback.
    pub count_max: usize,
    /// Bytes of payload held for one callback. The same payload sent several times in a row (a
    /// broadcast) counts once.
    pub bytes_max: usize,
}

impl Default for EffectLimits {
    /// Enough for a broadcast to 100,000 connections, and for four of the largest messages.
    fn default() -> Self {
        Self {
            count_max: 131_072,
            bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// The effects of one callback, in order; reused between callbacks.
///
/// An instance clears them before it runs a callback, so the caller reads them after each one.
#[derive(Debug, Default)]
pub struct Effects {
    entries: Vec<Entry>,
    /// Payloads, one after the other. Invariant: every range of `entries` lies within.
    payloads: Vec<u8>,
    /// Reasons of closes, one after the other.
    reasons: String,
    /// Messages that were refused because no live connection has their handler.
    dead_sends: u64,
}

impl Effects {
    /// No effects, no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The effects in the order in which the service asked for them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Effect<'_>> {
        self.entries.iter().map(|entry| match entry {
            Entry::Send {
                handler,
                opcode,
                payload,
            } => Effect::Send {
                handler: *handler,
                opcode: *opcode,
                payload: &self.payloads[payload.clone()],
            },
            Entry::Close {
                handler,
                code,
                reason,
            } => Effect::Close {
                handler: *handler,
                code: *code,
                reason: &self.reasons[reason.clone()],
            },
            Entry::Subscribe { handler, channel } => Effect::Subscribe {
                handler: *handler,
                channel: *channel,
            },
            Entry::Unsubscribe { handler, channel } => Effect::Unsubscribe {
                handler: *handler,
                channel: *channel,
            },
            Entry::Broadcast { channel, payload } => Effect::Broadcast {
                channel: *channel,
                payload: &self.payloads[payload.clone()],
            },
        })
    }

    /// How many messages the callback wanted to send with a handler that no live connection has;
    /// they are not among the effects.
    pub fn dead_sends(&self) -> u64 {
        self.dead_sends
    }

    /// Bytes that they hold in memory.
    pub fn memory_bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<Entry>();
        entries + self.payloads.capacity() + self.reasons.capacity()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets them. Memory is kept for the next callback up to [`KEEP_BYTES`].
    pub fn clear(&mut self) {
        self.entries.clear();
        self.payloads.clear();
        self.reasons.clear();
        self.dead_sends = 0;
        if self.payloads.capacity() > KEEP_BYTES {
            self.payloads.shrink_to(KEEP_BYTES);
        }
        if self.entries.capacity() > KEEP_BYTES / size_of::<Entry>() {
            self.entries.shrink_to(KEEP_BYTES / size_of::<Entry>());
        }
    }

    /// Counts a message whose handler no live connection has.
    pub(crate) fn refuse_dead(&mut self) {
        self.dead_sends += 1;
    }

    /// Adds a message; the payload is copied, unless it is the one sent just before.
    pub(crate) fn send(
        &mut self,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        limits: EffectLimits,
    ) -> Result<(), Full> {
        self.check_count(limits)?;
        let payload = match self.repeated(payload) {
            Some(range) => range,
            None => self.store(payload, limits)?,
        };
        self.entries.push(Entry::Send {
            handler,
            opcode,
            payload,
        });
        Ok(())
    }

    /// Adds a close.
    pub(crate) fn close(
        &mut self,
        handler: Handler,
        code: u16,
        reason: &str,
        limits: EffectLimits,
    ) -> Result<(), Full> {
        self.check_count(limits)?;
        let start = self.reasons.len();
        self.reasons.push_str(reason);
        let reason = start..self.reasons.len();
        self.entries.push(Entry::Close {
            handler,
            code,
            reason,
        });
        Ok(())
    }

    /// Adds a subscription.
    pub(crate) fn subscribe(
        &mut self,
        handler: Handler,
        channel: u64,
        limits: EffectLimits,
    ) -> Result<(), Full> {
        self.check_count(limits)?;
        self.entries.push(Entry::Subscribe { handler, channel });
        Ok(())
    }

    /// Adds the end of one.
    pub(crate) fn unsubscribe(
        &mut self,
        handler: Handler,
        channel: u64,
        limits: EffectLimits,
    ) -> Result<(), Full> {
        self.check_count(limits)?;
        self.entries.push(Entry::Unsubscribe { handler, channel });
        Ok(())
    }

    /// Adds a message to all subscribers of a channel.
    pub(crate) fn broadcast(
        &mut self,
        channel: u64,
        payload: &[u8],
        limits: EffectLimits,
    ) -> Result<(), Full> {
        self.check_count(limits)?;
        let payload = self.store(payload, limits)?;
        self.entries.push(Entry::Broadcast { channel, payload });
        Ok(())
    }

    fn check_count(&self, limits: EffectLimits) -> Result<(), Full> {
        match self.entries.len() < limits.count_max {
            true => Ok(()),
            false => Err(Full::Count),
        }
    }

    /// Whether the last effect sends these bytes already. A service that answers several times or
    /// broadcasts passes one string again and again, and comparing is as cheap as copying.
    fn repeated(&self, payload: &[u8]) -> Option<Range<usize>> {
        match self.entries.last()? {
            Entry::Send { payload: last, .. } if self.payloads[last.clone()] == *payload => {
                Some(last.clone())
            }
            Entry::Send { .. }
            | Entry::Close { .. }
            | Entry::Subscribe { .. }
            | Entry::Unsubscribe { .. }
            | Entry::Broadcast { .. } => None,
        }
    }

    fn store(&mut self, payload: &[u8], limits: EffectLimits) -> Result<Range<usize>, Full> {
        let start = self.payloads.len();
        if payload.len() > limits.bytes_max.saturating_sub(start) {
            return Err(Full::Bytes);
        }
        self.payloads.extend_from_slice(payload);
        Ok(start..self.payloads.len())
    }
}

/// Which bound was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Count,
    Bytes,
}

impl Full {
    /// What the service is told.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::Count => "this callback has sent as many messages as one may",
            Self::Bytes => "this callback has sent as many bytes as one may",
        }
    }
}

#[derive(Debug)]
enum Entry {
    Send {
        handler: Handler,
        opcode: Opcode,
        payload: Range<usize>,
    },
    Close {
        handler: Handler,
        code: u16,
        reason: Range<usize>,
    },
    Subscribe {
        handler: Handler,
        channel: u64,
    },
    Unsubscribe {
        handler: Handler,
        channel: u64,
    },
    Broadcast {
        channel: u64,
        payload: Range<usize>,
    },
}

/// Memory that is kept between callbacks: one of 16 MiB must not stay for ever.
const KEEP_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(number: u64) -> Handler {
        Handler::new(number).unwrap()
    }

    #[test]
    fn effects_come_back_in_order() {
        let mut effects = Effects::new();
        let limits = EffectLimits::default();
        effects
            .send(handler(1), Opcode::Text, b"one", limits)
            .unwrap();
        effects.close(handler(2), 1000, "bye", limits).unwrap();
        effects
            .send(handler(3), Opcode::Binary, b"", limits)
            .unwrap();
        let all: Vec<_> = effects.iter().collect();
        assert_eq!(
            all,
            [
                Effect::Send {
                    handler: handler(1),
                    opcode: Opcode::Text,
                    payload: b"one"
                },
                Effect::Close {
                    handler: handler(2),
                    code: 1000,
                    reason: "bye"
                },
                Effect::Send {
                    handler: handler(3),
                    opcode: Opcode::Binary,
                    payload: b""
                },
            ]
        );
        effects.clear();
        assert!(effects.is_empty());
    }

    #[test]
    fn a_repeated_payload_is_stored_once() {
        let mut effects = Effects::new();
        let limits = EffectLimits {
            count_max: 100,
            bytes_max: 4,
        };
        for number in 0..100 {
            effects
                .send(handler(number), Opcode::Text, b"four", limits)
                .unwrap();
        }
        assert_eq!(effects.payloads.len(), 4);
        let full = effects.send(handler(0), Opcode::Text, b"four", limits);
        assert_eq!(full, Err(Full::Count));
    }

    #[test]
    fn bytes_are_bounded_and_a_refused_message_leaves_nothing() {
        let mut effects = Effects::new();
        let limits = EffectLimits {
            count_max: 100,
            bytes_max: 5,
        };
        effects
            .send(handler(1), Opcode::Text, b"four", limits)
            .unwrap();
        assert_eq!(
            effects.send(handler(1), Opcode::Text, b"23", limits),
            Err(Full::Bytes)
        );
        effects
            .send(handler(1), Opcode::Text, b"5", limits)
            .unwrap();
        assert_eq!(effects.len(), 2);
    }

    #[test]
    fn one_large_callback_does_not_keep_its_memory() {
        let mut effects = Effects::new();
        let big = vec![0; 4 * KEEP_BYTES];
        effects
            .send(handler(1), Opcode::Binary, &big, EffectLimits::default())
            .unwrap();
        effects.clear();
        assert!(effects.payloads.capacity() <= KEEP_BYTES);
    }
}
