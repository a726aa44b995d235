//! Messages that a few send and all get: who heard them, how soon, and in which order.
//!
//! Each copy is known by the numbers in it. What all workers know of a message, when it was meant
//! to be sent and who has heard it, is kept by the [`Programme`]; what one connection has heard of
//! one publisher is a [`Hearing`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::scenario::FanOut;

/// What a connection sends to hear all that is published from then on.
pub(crate) const SUBSCRIBE: &[u8] = b"subscribe";
/// What it gets in return, once it does.
pub(crate) const SUBSCRIBED: &[u8] = b"subscribed";

/// All messages of a run by their publisher and number.
#[derive(Debug)]
pub(crate) struct Programme {
    /// Of each publisher, made as it goes on.
    publishers: Vec<Vec<OnceLock<Chunk>>>,
    /// Connections that are to hear each message.
    listeners: u32,
    /// Messages that were sent.
    published: AtomicU64,
    /// Workers that may still send some.
    sending: AtomicUsize,
}

type Chunk = Box<[Broadcast]>;

/// One message, as all workers see it.
#[derive(Debug, Default)]
struct Broadcast {
    /// When it should have been sent; 0 until it was.
    intended_ns: AtomicU64,
    /// Connections that have heard it.
    heard: AtomicU32,
    /// When the last of them did.
    last_ns: AtomicU64,
}

/// One copy of a message, the first that its connection got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// From the intended send time until it was here.
    pub(crate) delivery_ns: u64,
    /// Nobody heard it before.
    pub(crate) is_first: bool,
    /// Half of all have heard it now.
    pub(crate) is_median: bool,
}

/// What became of all messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Those that were sent.
    pub(crate) messages: u64,
    /// Those that every listener heard.
    pub(crate) complete: u64,
    /// Of each that anybody heard, from the intended send time until the last one did.
    pub(crate) last_ns: Vec<u64>,
}

impl Programme {
    /// Of so many connections that are not silent, and so many workers.
    pub(crate) fn new(fan_out: FanOut, listeners: u32, workers: u32) -> Self {
        let chunks = messages_max(fan_out).div_ceil(CHUNK);
        let publisher = || (0..chunks).map(|_| OnceLock::new()).collect();
        Self {
            publishers: (0..fan_out.publishers).map(|_| publisher()).collect(),
            listeners,
            published: AtomicU64::new(0),
            sending: AtomicUsize::new(workers as usize),
        }
    }

    /// Notes that a message is sent; before it can be heard.
    pub(crate) fn publish(&self, publisher: u32, seq: u64, intended_ns: u64) {
        self.published.fetch_add(1, Ordering::Relaxed);
        if let Some(cell) = self.chunk(publisher, seq) {
            let chunk = cell.get_or_init(|| (0..CHUNK).map(|_| Broadcast::default()).collect());
            // A time of 0 would stand for one that was never sent.
            chunk[place(seq)]
                .intended_ns
                .store(intended_ns.max(1), Ordering::Release);
        }
    }

    /// Notes that one more connection has heard a message; `None` of one that was never sent, or
    /// that is beyond what is kept.
    pub(crate) fn hear(&self, publisher: u32, seq: u64, at_ns: u64) -> Option<Copy> {
        let broadcast = &self.chunk(publisher, seq)?.get()?[place(seq)];
        let intended_ns = broadcast.intended_ns.load(Ordering::Acquire);
        if intended_ns == 0 {
            return None;
        }
        let before = broadcast.heard.fetch_add(1, Ordering::Relaxed);
        broadcast.last_ns.fetch_max(at_ns, Ordering::Relaxed);
        Some(Copy {
            delivery_ns: at_ns.saturating_sub(intended_ns),
            is_first: before == 0,
            is_median: before + 1 == self.listeners.div_ceil(2),
        })
    }

    /// Whether it is none of those that were sent, as far as they are kept: another generator may
    /// publish at the same place.
    pub(crate) fn was_never_sent(&self, publisher: u32, seq: u64) -> bool {
        let is_sent = |chunk: &Chunk| chunk[place(seq)].intended_ns.load(Ordering::Acquire) > 0;
        self.chunk(publisher, seq)
            .is_some_and(|cell| !cell.get().is_some_and(is_sent))
    }

    /// Notes that a worker sends no more.
    pub(crate) fn leave(&self) {
        self.sending.fetch_sub(1, Ordering::Release);
    }

    /// Messages that were sent; `None` while there may be more.
    pub(crate) fn published(&self) -> Option<u64> {
        let is_over = self.sending.load(Ordering::Acquire) == 0;
        is_over.then(|| self.published.load(Ordering::Relaxed))
    }

    /// Messages that were sent and are kept.
    pub(crate) fn followed(&self) -> u64 {
        let chunks = self.publishers.iter().flatten().filter_map(OnceLock::get);
        let broadcasts = chunks.flat_map(|chunk| chunk.iter());
        let sent = broadcasts.filter(|it| it.intended_ns.load(Ordering::Relaxed) > 0);
        sent.count() as u64
    }

    /// What became of all messages, once every worker has ended.
    pub(crate) fn reach(&self) -> Reach {
        let mut reach = Reach::default();
        let chunks = self.publishers.iter().flatten().filter_map(OnceLock::get);
        for broadcast in chunks.flat_map(|chunk| chunk.iter()) {
            let intended_ns = broadcast.intended_ns.load(Ordering::Relaxed);
            if intended_ns == 0 {
                continue;
            }
            let heard = broadcast.heard.load(Ordering::Relaxed);
            reach.messages += 1;
            reach.complete += u64::from(heard >= self.listeners);
            if heard > 0 {
                let last_ns = broadcast.last_ns.load(Ordering::Relaxed);
                reach.last_ns.push(last_ns.saturating_sub(intended_ns));
            }
        }
        reach
    }

    fn chunk(&self, publisher: u32, seq: u64) -> Option<&OnceLock<Chunk>> {
        let chunks = self.publishers.get(publisher as usize)?;
        chunks.get(usize::try_from(seq).ok()? / CHUNK)
    }
}

fn place(seq: u64) -> usize {
    (seq % CHUNK as u64) as usize
}

/// Messages of one publisher that are followed; those beyond are sent and not measured.
pub(crate) fn messages_max(fan_out: FanOut) -> usize {
    MESSAGES_MAX / fan_out.publishers.max(1) as usize
}

/// What one connection has heard of one publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hearing {
    /// The highest number heard, plus one.
    next: u64,
    /// Which of the last numbers were heard: bit `i` is number `next - 1 - i`.
    window: u128,
    /// Messages heard, each once.
    heard: u64,
}

/// What a copy is to the connection that got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The first one of its message, behind those before it.
    InOrder,
    /// The first one of its message, behind a later message.
    Late,
    /// Another one of a message that was heard. So counts, too, what comes more than 128 messages
    /// late: nobody remembers it.
    Again,
}

impl Hearing {
    /// Takes a copy of message `seq`.
    pub(crate) fn take(&mut self, seq: u64) -> Heard {
        let heard = if seq >= self.next {
            let ahead = u32::try_from(seq - self.next + 1).unwrap_or(u32::MAX);
            self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
            self.next = seq + 1;
            Heard::InOrder
        } else {
            let behind = u32::try_from(self.next - 1 - seq).unwrap_or(u32::MAX);
            match 1_u128.checked_shl(behind) {
                Some(bit) if self.window & bit == 0 => {
                    self.window |= bit;
                    Heard::Late
                }
                Some(_) | None => Heard::Again,
            }
        };
        self.heard += u64::from(heard != Heard::Again);
        heard
    }

    /// Messages heard, each once.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }
}

/// Messages of a run that are followed: 96 MiB.
const MESSAGES_MAX: usize = 1 << 22;
/// Messages that are given memory at once.
const CHUNK: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_tells_what_is_new_late_and_heard_before() {
        let mut hearing = Hearing::default();
        let heard: Vec<Heard> = [0, 1, 4, 2, 2, 4, 3, 5]
            .into_iter()
            .map(|seq| hearing.take(seq))
            .collect();
        use Heard::{Again, InOrder, Late};
        let wanted = [InOrder, InOrder, InOrder, Late, Again, Again, Late, InOrder];
        assert_eq!(heard, wanted);
        assert_eq!(hearing.heard(), 6);
        // Who comes late hears from there on.
        let mut late = Hearing::default();
        assert_eq!(late.take(1000), InOrder);
        assert_eq!(late.take(1000 - 127), Late);
        assert_eq!(late.take(1000 - 128), Again);
        assert_eq!(late.take(5000), InOrder);
        assert_eq!(late.take(5000), Again);
    }

    #[test]
    fn the_first_the_median_and_the_last_listener_are_told_apart() {
        let fan_out = FanOut {
            publishers: 2,
            silent: 0,
        };
        let programme = Programme::new(fan_out, 4, 1);
        assert_eq!(programme.hear(1, 5000, 9), None);
        programme.publish(1, 5000, 100);
        assert_eq!(programme.hear(1, 4999, 9), None);
        let copies: Vec<(u64, bool, bool)> = [110, 120, 150, 130]
            .into_iter()
            .map(|at_ns| programme.hear(1, 5000, at_ns).unwrap())
            .map(|copy| (copy.delivery_ns, copy.is_first, copy.is_median))
            .collect();
        assert_eq!(
            copies,
            [
                (10, true, false),
                (20, false, true),
                (50, false, false),
                (30, false, false)
            ]
        );
        assert!(programme.was_never_sent(1, 4999) && programme.was_never_sent(0, 0));
        assert!(!programme.was_never_sent(1, 5000));
        assert!(
            !programme.was_never_sent(0, MESSAGES_MAX as u64),
            "not kept"
        );
        programme.publish(0, 0, 200);
        programme.publish(0, 1, 300);
        assert_eq!(programme.followed(), 3);
        programme.hear(0, 1, 330);
        assert_eq!(programme.published(), None);
        programme.leave();
        assert_eq!(programme.published(), Some(3));
        let reach = programme.reach();
        assert_eq!((reach.messages, reach.complete), (3, 1));
        assert_eq!(reach.last_ns, [30, 50]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_not_followed() {
        let fan_out = FanOut {
            publishers: 1024,
            silent: 0,
        };
        let programme = Programme::new(fan_out, 1, 1);
        let last = messages_max(fan_out) as u64 - 1;
        programme.publish(3, last, 5);
        programme.publish(3, last + 1, 5);
        assert!(programme.hear(3, last, 6).is_some());
        assert_eq!(programme.hear(3, last + 1, 6), None);
        assert_eq!(programme.hear(9999, 0, 6), None);
    }
}
