use super::*;

fn spec() -> LinkSpec {
    LinkSpec {
        delay: Duration::from_millis(20),
        ..LinkSpec::default()
    }
}

/// An exchange whose ways took at least `min_us` and half of `round_trip_us` in the middle.
fn exchange(min_us: u64, round_trip_us: u64) -> IdleExchange {
    let spread = |min_us: u64, p50_us: u64| Spread {
        min_ns: min_us * 1000,
        p50_ns: p50_us * 1000,
        p99_ns: p50_us * 1000,
        max_ns: p50_us * 1000,
    };
    IdleExchange {
        exchanges: 20,
        round_trip: spread(2 * min_us, round_trip_us),
        up: spread(min_us, round_trip_us / 2),
        down: spread(min_us, round_trip_us / 2),
    }
}

#[test]
fn a_link_is_doubted_above_half_a_millisecond_and_refused_above_five() {
    let link = Link::with(&spec(), Path::Loopback, Vec::new());
    let judge = |measured: &IdleExchange| {
        let (refused, doubted) = (link.objection(measured), link.reservation(measured));
        (refused.is_some(), doubted.is_some())
    };
    assert_eq!(judge(&exchange(20_050, 40_400)), (false, false));
    assert_eq!(judge(&exchange(20_050, 40_600)), (false, true));
    assert_eq!(judge(&exchange(20_050, 45_100)), (true, true));
    assert!(judge(&exchange(19_999, 40_100)).0);
    let reason = link.reservation(&exchange(20_050, 40_600)).unwrap();
    assert_eq!(
        reason,
        "the median round trip is 40600 us, more than 40500 us"
    );
}

#[test]
fn the_time_on_a_bottleneck_is_not_an_excess() {
    let slow = LinkSpec {
        rate_bytes_per_s: Some(8000),
        ..spec()
    };
    let link = Link::with(&slow, Path::Loopback, Vec::new());
    assert_eq!(link.reservation(&exchange(30_000, 60_000)), None);
}

#[test]
fn a_stand_in_refuses_what_it_cannot_do() {
    for more in [
        LinkSpec {
            jitter: Duration::from_millis(1),
            ..spec()
        },
        LinkSpec {
            loss: 0.01,
            ..spec()
        },
        LinkSpec {
            rate_bytes_per_s: Some(1_000_000),
            ..spec()
        },
    ] {
        let asked = LinkSpec {
            kind: Some(LinkKind::StandIn),
            ..more
        };
        let error = Link::establish(&asked).unwrap_err();
        assert!(error.to_string().contains("only delays"), "{error}");
        let without_delay = LinkSpec {
            delay: Duration::ZERO,
            kind: None,
            ..asked
        };
        assert!(!without_delay.is_plain());
    }
}

#[test]
fn the_queue_of_netem_is_counted_in_packets() {
    assert_eq!(spec().queue_bound(LinkKind::Netem), (65_536, "packets"));
    assert_eq!(spec().queue_bound(LinkKind::Tun), (64 << 20, "bytes"));
}
