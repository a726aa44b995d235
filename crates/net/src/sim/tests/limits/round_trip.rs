//! The round trips that a session measures with its own pings.

use super::*;

/// The payloads of the pings that came, which are all that came.
fn pings(raw: &mut Raw) -> Vec<Vec<u8>> {
    let received = std::mem::take(&mut raw.received);
    let frames = received.chunks(10).map(|frame| {
        assert_eq!(frame[..2], [0x89, 8], "{frame:?}");
        frame[2..].to_vec()
    });
    frames.collect()
}

/// What was measured, and None for each pong that counts for nothing.
fn measured(raw: &Raw) -> Vec<Option<Duration>> {
    let pongs = raw.pair.server.happened.iter();
    let pongs = pongs.filter_map(|(_, what)| {
        let Happened::Pong(round_trip) = what else {
            return None;
        };
        Some(*round_trip)
    });
    pongs.collect()
}

fn each_second() -> SessionLimits {
    SessionLimits {
        ping_interval: Some(ms(1000)),
        pong_timeout: Some(ms(3000)),
        idle_timeout: None,
        ..SessionLimits::default()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn an_idle_peer_is_measured_by_the_ping_that_it_is_sent() {
    let mut raw = Raw::upgraded(SessionLimits::default());
    raw.until(ms(120_000));
    let ping = pings(&mut raw).remove(0);
    raw.until(ms(120_030));
    raw.send(&frame(0x8a, &ping));
    assert_eq!(measured(&raw), [Some(ms(30))]);
    // The same once more answers nothing.
    raw.send(&frame(0x8a, &ping));
    assert_eq!(measured(&raw), [Some(ms(30)), None]);
}

#[test]
fn pongs_that_nobody_asked_for_count_for_nothing() {
    let mut raw = Raw::upgraded(each_second());
    raw.send(&frame(0x8a, b""));
    raw.until(ms(1000));
    let ping = pings(&mut raw).remove(0);
    raw.send(&frame(0x8a, b"01234567"));
    raw.send(&frame(0x8a, &ping[..7]));
    raw.send(&frame(0x8a, &[&*ping, b"0"].concat()));
    assert_eq!(measured(&raw), [None; 4]);
    raw.until(ms(1007));
    raw.send(&frame(0x8a, &ping));
    assert_eq!(measured(&raw)[4..], [Some(ms(7))]);
}

#[test]
fn a_busy_peer_is_pinged_in_the_interval_only_if_there_is_one() {
    for (ping_interval, expected) in [(Some(ms(1000)), 3), (None, 0)] {
        let mut raw = Raw::upgraded(SessionLimits {
            ping_interval,
            ..SessionLimits::default()
        });
        raw.pair.server.echo = false;
        for at in 1..40 {
            raw.until(ms(100 * at));
            raw.send(&frame(0x82, b"busy"));
            let last = raw.received.len().saturating_sub(8);
            if at % 10 == 0 && ping_interval.is_some() {
                let pong = frame(0x8a, &raw.received[last..]);
                raw.send(&pong);
            }
        }
        let payloads = pings(&mut raw);
        assert_eq!(payloads.len(), expected);
        assert!(payloads.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(measured(&raw), vec![Some(Duration::ZERO); expected]);
    }
}

#[test]
fn a_ping_that_is_not_answered_is_given_up_after_the_pong_timeout() {
    let mut raw = Raw::upgraded(each_second());
    raw.until(ms(3999));
    let first = pings(&mut raw);
    assert_eq!(first.len(), 1, "one at a time");
    raw.until(ms(4000));
    let second = pings(&mut raw);
    assert_eq!(second.len(), 1);
    // The latest one counts, which a peer may answer alone.
    raw.send(&frame(0x8a, &first[0]));
    raw.send(&frame(0x8a, &second[0]));
    assert_eq!(measured(&raw), [None, Some(Duration::ZERO)]);
    assert!(raw.is_open(), "an interval alone ends nobody");
}

#[test]
fn a_ping_behind_what_the_peer_does_not_take_measures_nothing() {
    let mut raw = Raw::upgraded(each_second());
    raw.peer.pause_receive(raw.socket);
    let much = vec![7; 2 * WINDOW_BYTES];
    raw.session().send(Opcode::Binary, &much).unwrap();
    raw.until(ms(1500));
    raw.peer.resume_receive(raw.socket);
    raw.until(ms(1600));
    let ping = raw.received.split_off(raw.received.len() - 10);
    assert_eq!(ping[..2], [0x89, 8]);
    raw.send(&frame(0x8a, &ping[2..]));
    assert_eq!(measured(&raw), [None]);
}

#[test]
fn a_pong_that_was_kept_measures_nothing() {
    let mut raw = Raw::upgraded(each_second());
    raw.until(ms(1000));
    let ping = pings(&mut raw).remove(0);
    let mut session = raw
        .pair
        .server
        .sessions
        .remove(&raw.pair.server.happened[0].0);
    let session = session.as_mut().unwrap();
    let mut pong = frame(0x8a, &ping);
    let now = Time::default() + ms(1001);
    let mut scratch = crate::Plaintext::new();
    let input = session.open(&mut pong, &mut scratch).unwrap();
    session.keep(input);
    let mut input = session.unread();
    let event = session.poll(&mut input, now + ms(50));
    let Some(crate::SessionEvent::Pong { round_trip, .. }) = event else {
        panic!("{event:?}");
    };
    assert_eq!(round_trip, None);
}

#[test]
fn a_ping_behind_what_the_kernel_still_has_measures_nothing() {
    for (untaken_bytes, expected) in [(16 * 1024, Some(ms(0))), (16 * 1024 + 1, None)] {
        let mut raw = Raw::upgraded(each_second());
        raw.until(ms(999));
        let now = Time::default() + ms(1000);
        assert!(raw.session().on_deadline(untaken_bytes, now).is_none());
        raw.until(ms(1000));
        let ping = pings(&mut raw).remove(0);
        raw.send(&frame(0x8a, &ping));
        assert_eq!(measured(&raw), [expected]);
    }
}

#[test]
fn silence_that_ends_with_the_interval_asks_for_one_ping() {
    let mut raw = Raw::upgraded(SessionLimits {
        idle_timeout: Some(ms(1000)),
        ..each_second()
    });
    raw.until(ms(1500));
    let ping = pings(&mut raw);
    assert_eq!(ping.len(), 1);
    raw.send(&frame(0x8a, &ping[0]));
    assert_eq!(measured(&raw), [Some(ms(500))]);
}
