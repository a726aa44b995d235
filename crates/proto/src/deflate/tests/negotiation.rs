//! Offers and answers.

use std::string::String;

use crate::deflate::negotiation::AnswerInvalid;
use crate::deflate::{DeflateAgreement, DeflateDirection, DeflateOffer, DeflatePolicy, WindowBits};

fn bits(bits: u8) -> WindowBits {
    WindowBits::new(bits).unwrap()
}

fn direction(context_takeover: bool, window_bits: u8) -> DeflateDirection {
    DeflateDirection {
        context_takeover,
        window_bits: bits(window_bits),
    }
}

/// A server that allows everything.
fn generous() -> DeflatePolicy {
    DeflatePolicy {
        server: direction(true, 15),
        client: direction(true, 15),
        ..DeflatePolicy::default()
    }
}

fn answer(policy: &DeflatePolicy, field: &str) -> Option<(DeflateAgreement, String)> {
    policy.answer([field].into_iter())
}

/// A direction as `takeover/bits`.
fn said(direction: &DeflateDirection) -> (bool, u8) {
    (direction.context_takeover, direction.window_bits.get())
}

#[test]
fn a_server_grants_what_is_asked_and_no_more_than_it_allows() {
    let generous = generous();
    let modest = DeflatePolicy {
        server: direction(false, 12),
        client: direction(false, 10),
        ..DeflatePolicy::default()
    };
    // In `sn`, `cn`, `sb` and `cb`: see `written`.
    let cases = [
        (&generous, "", "", (true, 15), (true, 15)),
        (&generous, "; cb", "", (true, 15), (true, 15)),
        (&generous, "; cb=9", "; cb=9", (true, 15), (true, 9)),
        (&generous, "; cb=15", "", (true, 15), (true, 15)),
        (&generous, "; sb=15", "; sb=15", (true, 15), (true, 15)),
        (&generous, "; sb=\"10\"", "; sb=10", (true, 10), (true, 15)),
        (&generous, "; sb=8", "; sb=8", (true, 8), (true, 15)),
        (&generous, "; sn", "; sn", (false, 15), (true, 15)),
        (&generous, "; cn", "; cn", (true, 15), (false, 15)),
        (&modest, "", "; sn; cn; sb=12", (false, 12), (false, 15)),
        (
            &modest,
            "; cb",
            "; sn; cn; sb=12; cb=10",
            (false, 12),
            (false, 10),
        ),
        (
            &modest,
            "; sb=9;cb=9",
            "; sn; cn; sb=9; cb=9",
            (false, 9),
            (false, 9),
        ),
    ];
    for (policy, offer, expected, server, client) in cases {
        let (agreement, field) = answer(policy, &written(offer)).unwrap();
        assert_eq!(field, written(expected), "{offer}");
        assert_eq!(said(&agreement.server), server, "{offer}");
        assert_eq!(said(&agreement.client), client, "{offer}");
    }
}

/// The extension with its parameters in full.
fn written(parameters: &str) -> String {
    let parameters = parameters
        .replace("sn", "server_no_context_takeover")
        .replace("cn", "client_no_context_takeover")
        .replace("sb", "server_max_window_bits")
        .replace("cb", "client_max_window_bits");
    ["permessage-deflate", &parameters].concat()
}

#[test]
fn an_offer_with_a_fault_is_declined_and_the_next_one_looked_at() {
    for fault in [
        "; unknown",
        "; server_no_context_takeover=1",
        "; client_no_context_takeover=\"\\a\"",
        "; server_no_context_takeover; server_no_context_takeover",
        "; server_max_window_bits",
        "; server_max_window_bits=7",
        "; server_max_window_bits=16",
        "; server_max_window_bits=08",
        "; server_max_window_bits=+9",
        "; server_max_window_bits=256",
        "; server_max_window_bits=9; server_max_window_bits=9",
        "; client_max_window_bits=7",
        "; client_max_window_bits; client_max_window_bits=9",
        "; client_max_window_bits=99999999999",
    ] {
        let faulty = ["permessage-deflate", fault].concat();
        assert_eq!(answer(&generous(), &faulty), None, "{fault}");
        let then = [
            &*faulty,
            ", x-webkit-deflate-frame, permessage-deflate; server_max_window_bits=11",
        ]
        .concat();
        let (agreement, _) = answer(&generous(), &then).unwrap();
        assert_eq!(agreement.server.window_bits, bits(11), "{fault}");
    }
    assert_eq!(answer(&generous(), ""), None);
    assert_eq!(answer(&generous(), "permessage-bzip2"), None);
}

#[test]
fn a_client_offers_what_it_was_told_and_takes_what_it_offered() {
    let default = DeflateOffer::default();
    assert_eq!(
        default.field(),
        "permessage-deflate; client_max_window_bits"
    );
    let strict = DeflateOffer {
        server: direction(false, 10),
        client: direction(false, 9),
        ..default
    };
    assert_eq!(
        strict.field(),
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
         server_max_window_bits=10; client_max_window_bits=9"
    );
    let check = |offer: &DeflateOffer, answer: &str| offer.check([answer].into_iter());
    assert_eq!(check(&default, ""), Ok(None));
    let plain = check(&default, "permessage-deflate").unwrap().unwrap();
    assert_eq!(
        (said(&plain.server), said(&plain.client)),
        ((true, 15), (true, 15))
    );
    let answered = "permessage-deflate; client_max_window_bits=11; client_no_context_takeover";
    let reduced = check(&default, answered).unwrap().unwrap();
    assert_eq!(
        (said(&reduced.server), said(&reduced.client)),
        ((true, 15), (false, 11))
    );
    let granted = "permessage-deflate; server_no_context_takeover; server_max_window_bits=9";
    let granted = check(&strict, granted).unwrap().unwrap();
    assert_eq!(
        (said(&granted.server), said(&granted.client)),
        ((false, 9), (false, 9))
    );
    for (offer, answer) in [
        (&strict, "permessage-deflate"),
        (
            &strict,
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=11",
        ),
        (&strict, "permessage-deflate; server_max_window_bits=10"),
        (&default, "permessage-deflate; client_max_window_bits"),
        (&default, "permessage-deflate; server_max_window_bits=16"),
        (&default, "permessage-deflate; other"),
        (&default, "permessage-deflate, permessage-deflate"),
        (&default, "permessage-bzip2"),
        (&default, "permessage-deflate;"),
    ] {
        assert_eq!(check(offer, answer), Err(AnswerInvalid), "{answer}");
    }
}

#[test]
fn both_ends_read_an_answer_the_same() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut any = || direction(random.bool(), random.u8(8..16));
        let offer = DeflateOffer {
            server: any(),
            client: any(),
            ..DeflateOffer::default()
        };
        let policy = DeflatePolicy {
            server: any(),
            client: any(),
            ..DeflatePolicy::default()
        };
        let (granted, field) = answer(&policy, &offer.field()).unwrap();
        let read = offer.check([&*field].into_iter()).unwrap().unwrap();
        assert_eq!(granted.server, read.server, "seed {seed}: {field}");
        assert_eq!(granted.client, read.client, "seed {seed}: {field}");
    }
}
