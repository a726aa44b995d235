//! How much one source address may take: connections at a time, and handshakes per second.
//!
//! All workers share the table. It is touched when a connection is accepted and when one has gone,
//! never in between.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use moonwire_net::Time;

use crate::cidr::Cidr;
use crate::config::Limits;

/// What every source has taken.
#[derive(Debug)]
pub(crate) struct Sources {
    limits: SourceLimits,
    /// Keyed with a random number, because the peers choose the keys.
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    /// When the next refusal may be logged, in nanoseconds, and how many were not logged since.
    log_at: AtomicU64,
    unlogged: AtomicU64,
}

/// The bounds of each source.
#[derive(Debug)]
struct SourceLimits {
    /// 0: no bound.
    connections_max: usize,
    /// 0: no bound. Otherwise one handshake may follow another after this many nanoseconds...
    handshake_ns: u64,
    /// ... and so much earlier than that: a second's worth may come at once.
    burst_ns: u64,
    /// Sources without bounds.
    exempt: Vec<Cidr>,
    /// Most entries of a shard; beyond it a new source is refused.
    entries_per_shard_max: usize,
}

/// Who is counted together: an address of IPv4, or the 64 bits of IPv6 that one site has for
/// itself (RFC 4291, 2.5.4).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Source {
    V4(u32),
    V6(u64),
}

/// Why a source gets no further connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Excess {
    /// It has too many.
    Connections,
    /// It asks for them too fast.
    Handshakes,
}

/// A part of the table, so that workers seldom wait for each other.
#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Source, Account, RandomState>,
    /// Entries that the last look for stale ones left; with twice as many there is another, so that
    /// looking costs each new entry a constant.
    kept: usize,
    /// When that was. A table that is full of sources that stay is not looked through for each one
    /// that is new, but once a second.
    swept: Time,
}

/// What one source has taken. It is stale, as good as none, when there is no connection and
/// `handshake_due` has passed.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    connections: usize,
    /// When its next handshake would come if they came evenly.
    handshake_due: Time,
}

impl Sources {
    /// Nobody has anything yet.
    pub(crate) fn new(limits: &Limits, workers: usize) -> Self {
        let rate = u64::from(limits.handshakes_per_source_per_s_max);
        let handshake_ns = SECOND_NS.checked_div(rate).unwrap_or(0);
        let connections = workers.saturating_mul(limits.sockets_per_worker_max());
        Self {
            limits: SourceLimits {
                connections_max: limits.connections_per_source_max,
                handshake_ns,
                burst_ns: handshake_ns * rate,
                exempt: limits.source_limits_exempt.clone(),
                entries_per_shard_max: 2 * connections / SHARDS + ENTRIES_SPARE,
            },
            hasher: RandomState::new(),
            shards: std::iter::repeat_with(Mutex::default)
                .take(SHARDS)
                .collect(),
            log_at: AtomicU64::new(0),
            unlogged: AtomicU64::new(0),
        }
    }

    /// Counts a connection from `address`, or says which bound it is beyond. What was counted is
    /// to be released once.
    pub(crate) fn admit(&self, address: IpAddr, now: Time) -> Result<(), Excess> {
        match self.counted(address) {
            Some(source) => self.shard(source).admit(source, &self.limits, now),
            None => Ok(()),
        }
    }

    /// A connection that was admitted has gone.
    pub(crate) fn release(&self, address: IpAddr, now: Time) {
        if let Some(source) = self.counted(address) {
            self.shard(source).release(source, now);
        }
    }

    /// How many sources there are in the table.
    pub(crate) fn len(&self) -> usize {
        let lengths = self.shards.iter().map(|shard| lock(shard).entries.len());
        lengths.sum()
    }

    /// How many connections are counted.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        let open = |shard| -> usize {
            let shard = lock(shard);
            shard
                .entries
                .values()
                .map(|account| account.connections)
                .sum()
        };
        self.shards.iter().map(open).sum()
    }

    /// Whether a refusal may be logged now, at most once a second; if so, how many were not.
    pub(crate) fn may_log(&self, now: Time) -> Option<u64> {
        let (now, at) = (now.as_nanos(), self.log_at.load(Ordering::Relaxed));
        let next = now + SECOND_NS;
        let is_due = now >= at
            && self
                .log_at
                .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// The source to be counted; None if it has no bounds.
    fn counted(&self, address: IpAddr) -> Option<Source> {
        let limits = &self.limits;
        if limits.connections_max == 0 && limits.handshake_ns == 0 {
            return None;
        }
        // A listener of both families gives addresses of IPv4 as ::ffff:a.b.c.d.
        let address = address.to_canonical();
        let is_exempt = limits.exempt.iter().any(|cidr| cidr.contains(address));
        (!is_exempt).then(|| Source::of(address))
    }

    fn shard(&self, source: Source) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(source) as usize;
        lock(&self.shards[hash % SHARDS])
    }
}

impl Source {
    fn of(canonical: IpAddr) -> Self {
        match canonical {
            IpAddr::V4(address) => Self::V4(address.into()),
            IpAddr::V6(address) => Self::V6((u128::from(address) >> 64) as u64),
        }
    }
}

impl Shard {
    fn admit(&mut self, source: Source, limits: &SourceLimits, now: Time) -> Result<(), Excess> {
        let is_new = !self.entries.contains_key(&source);
        if is_new && !self.has_place(limits.entries_per_shard_max, now) {
            return Err(Excess::Connections);
        }
        let account = self.entries.entry(source).or_default();
        if limits.connections_max > 0 && account.connections >= limits.connections_max {
            return Err(Excess::Connections);
        }
        let due = account.handshake_due.max(now);
        let next = due + Duration::from_nanos(limits.handshake_ns);
        if next - now > Duration::from_nanos(limits.burst_ns) {
            return Err(Excess::Handshakes);
        }
        account.handshake_due = next;
        account.connections += 1;
        Ok(())
    }

    /// Whether one more entry fits, once the stale ones are gone.
    fn has_place(&mut self, entries_max: usize, now: Time) -> bool {
        let is_doubled = self.entries.len() >= (2 * self.kept).max(SWEEP_ENTRIES_MIN);
        let may_sweep = now >= self.swept + Duration::from_nanos(SECOND_NS);
        if is_doubled || (self.entries.len() >= entries_max && may_sweep) {
            self.sweep(now);
        }
        self.entries.len() < entries_max
    }

    fn release(&mut self, source: Source, now: Time) {
        if let Entry::Occupied(mut entry) = self.entries.entry(source) {
            let account = entry.get_mut();
            account.connections = account.connections.saturating_sub(1);
            if account.is_stale(now) {
                entry.remove();
            }
        }
    }

    fn sweep(&mut self, now: Time) {
        self.entries.retain(|_, account| !account.is_stale(now));
        self.kept = self.entries.len();
        self.swept = now;
        self.entries.shrink_to(2 * self.kept);
    }
}

impl Account {
    fn is_stale(&self, now: Time) -> bool {
        self.connections == 0 && self.handshake_due <= now
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connections => "connections_per_source_max",
            Self::Handshakes => "handshakes_per_source_per_s_max",
        })
    }
}

/// The state, also after a panic of another holder: no invariant is broken half-way.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Several times as many as a machine has cores.
const SHARDS: usize = 64;

/// Entries of a shard beyond twice its part of all connections: the sources of the last second,
/// whose connections have gone again. With twice the part, the workers are full before it is.
const ENTRIES_SPARE: usize = 4096;

/// Below so many, looking for stale entries would cost more than they do.
const SWEEP_ENTRIES_MIN: usize = 64;

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(connections: usize, handshakes: u32) -> Sources {
        let limits = Limits {
            connections_per_source_max: connections,
            handshakes_per_source_per_s_max: handshakes,
            source_limits_exempt: vec!["127.0.0.0/8".parse().unwrap()],
            connections_per_worker_max: 100,
            ..Limits::default()
        };
        Sources::new(&limits, 2)
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_so_many_connections_and_no_more() {
        let sources = sources(2, 0);
        for address in ["10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(sources.admit(ip(address), at(0)), Ok(()), "{address}");
        }
        for address in ["10.0.0.1", "::ffff:10.0.0.1"] {
            let refused = sources.admit(ip(address), at(0));
            assert_eq!(refused, Err(Excess::Connections), "{address}");
        }
        assert_eq!(sources.admit(ip("10.0.0.2"), at(0)), Ok(()), "another one");
        sources.release(ip("10.0.0.1"), at(0));
        assert_eq!(sources.admit(ip("10.0.0.1"), at(0)), Ok(()));
        assert_eq!(
            sources.admit(ip("10.0.0.1"), at(0)),
            Err(Excess::Connections)
        );
    }

    #[test]
    fn a_site_of_ipv6_is_one_source() {
        let sources = sources(2, 0);
        assert_eq!(sources.admit(ip("2001:db8:0:1::1"), at(0)), Ok(()));
        assert_eq!(sources.admit(ip("2001:db8:0:1:ffff::"), at(0)), Ok(()));
        let third = sources.admit(ip("2001:db8:0:1::2"), at(0));
        assert_eq!(third, Err(Excess::Connections));
        assert_eq!(sources.admit(ip("2001:db8:0:2::1"), at(0)), Ok(()));
    }

    #[test]
    fn a_second_has_so_many_handshakes_at_once_or_evenly() {
        for rate in [1, 3, 200, 7001] {
            let sources = sources(0, rate);
            for number in 0..rate {
                let admitted = sources.admit(ip("10.0.0.1"), at(0));
                assert_eq!(admitted, Ok(()), "{number} of {rate}");
            }
            let refused = sources.admit(ip("10.0.0.1"), at(0));
            assert_eq!(refused, Err(Excess::Handshakes), "{rate}");
            // What was refused counts for nothing; after a second it is as at the beginning.
            let later = at(1000);
            let admitted = (0..=rate).filter(|_| sources.admit(ip("10.0.0.1"), later).is_ok());
            assert_eq!(admitted.count(), rate as usize, "{rate}");
        }
    }

    #[test]
    fn a_tenth_of_a_second_gives_a_tenth_of_the_handshakes() {
        let sources = sources(0, 100);
        while sources.admit(ip("10.0.0.1"), at(0)).is_ok() {}
        let admitted = (0..100).filter(|_| sources.admit(ip("10.0.0.1"), at(100)).is_ok());
        assert_eq!(admitted.count(), 10);
    }

    #[test]
    fn an_exempt_source_is_not_even_counted() {
        let sources = sources(1, 1);
        for _ in 0..10 {
            assert_eq!(sources.admit(ip("127.9.9.9"), at(0)), Ok(()));
            assert_eq!(sources.admit(ip("::ffff:127.0.0.1"), at(0)), Ok(()));
        }
        assert_eq!(sources.len(), 0);
        sources.release(ip("127.9.9.9"), at(0));
    }

    /// Sources that come once and go leave nothing, and sources that stay cannot fill the memory.
    #[test]
    fn the_table_is_swept_and_has_a_bound() {
        let sources = sources(0, 200);
        for number in 0..100_000u32 {
            let address = IpAddr::V4(number.into());
            sources.admit(address, at(u64::from(number) / 100)).unwrap();
            sources.release(address, at(u64::from(number) / 100));
        }
        assert!(
            sources.len() <= 3 * SHARDS * SWEEP_ENTRIES_MIN,
            "{}",
            sources.len()
        );
        let bound = SHARDS * sources.limits.entries_per_shard_max;
        let admitted = (0..2 * bound).filter(|&number| {
            let address = IpAddr::V4((0x0a00_0000 + number as u32).into());
            sources.admit(address, at(20_000)).is_ok()
        });
        let admitted = admitted.count();
        assert!(
            admitted <= bound && admitted > bound / 2,
            "{admitted} of {bound}"
        );
    }

    #[test]
    fn refusals_are_logged_once_a_second() {
        let sources = sources(1, 1);
        assert_eq!(sources.may_log(at(5000)), Some(0));
        assert_eq!(sources.may_log(at(5000)), None);
        assert_eq!(sources.may_log(at(5999)), None);
        assert_eq!(sources.may_log(at(6000)), Some(2));
    }
}
