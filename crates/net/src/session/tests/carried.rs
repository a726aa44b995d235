//! Connections that change their driver while bytes are on the way.

use super::*;

/// Echoes through a server that moves to the other loop again and again, then checks that nothing
/// was lost, doubled or altered.
fn carried(on: DriverChoice, other: DriverChoice, tls: bool) {
    let (mut first, addr) = world(on);
    // The client sends all at once.
    let write_queue_bytes_max = usize::MAX;
    first.limits = Arc::new(SessionLimits {
        write_queue_bytes_max,
        ..SessionLimits::default()
    });
    let client_tls = ClientTls::new(&Trust::Anyone)
        .unwrap()
        .with_records(TlsRecords::Own);
    if tls {
        let server = ServerTls::self_signed().unwrap();
        first.server_tls = Some(server.with_records(TlsRecords::Own));
    }
    let client = first.connect(addr, tls.then_some(&client_tls));
    let mut server = upgraded(&mut first, client);
    let mut second = Loop::new(SystemDriver::new(other).unwrap());
    let mut sent = Vec::new();
    for round in 0..20u32 {
        // Large enough that sends are in flight and records cut in two when it moves.
        for part in 0..8u8 {
            let length = 1 + (round as usize * 7919 + usize::from(part) * 104_729) % 400_000;
            let payload = vec![part ^ round as u8; length];
            first
                .session(client)
                .send(Opcode::Binary, &payload)
                .unwrap();
            sent.push(payload);
        }
        for _ in 0..round % 4 {
            first.turn(Some(Time::default()));
            second.turn(Some(Time::default()));
        }
        let is_first = round % 2 == 0;
        let (from, to) = if is_first {
            (&mut first, &mut second)
        } else {
            (&mut second, &mut first)
        };
        from.driver.detach(server);
        while from.detached.is_empty() {
            from.turn(Some(Time::default()));
        }
        let detached = from.detached.pop().unwrap();
        let detached = std::thread::spawn(move || detached).join().unwrap();
        server = to.attach(detached);
    }
    let give_up = first.driver.now() + Duration::from_secs(20);
    while first.messages(client).len() < sent.len() && first.driver.now() < give_up {
        first.turn(Some(first.driver.now() + Duration::from_millis(1)));
        second.turn(Some(Time::default()));
    }
    assert!(
        first.messages(client) == sent,
        "{} of {}",
        first.messages(client).len(),
        sent.len()
    );
}

fn a_plain_session_moves_mid_traffic_and_loses_nothing(on: DriverChoice) {
    carried(on, on, false);
}

fn a_tls_session_moves_mid_traffic_and_loses_nothing(on: DriverChoice) {
    carried(on, on, true);
}

fn a_session_moves_from_one_driver_to_the_other(on: DriverChoice) {
    carried(on, DriverChoice::Epoll, false);
}

fn an_unanswered_request_moves_with_what_followed_it(on: DriverChoice) {
    let (mut first, addr) = world(on);
    first.answer = Answer::Later;
    let client = first.connect(addr, None);
    run_until(&mut first, "the request", |first| {
        first
            .happened
            .iter()
            .any(|(_, what)| matches!(what, Happened::Request(_)))
    });
    let server = first
        .happened
        .iter()
        .find(|(_, what)| *what == Happened::Accepted)
        .unwrap()
        .0;
    first.driver.detach(server);
    run_until(&mut first, "the detach", |first| !first.detached.is_empty());
    let detached = first.detached.pop().unwrap();
    assert_eq!(detached.session().request().unwrap().path(), "/echo");
    let mut second = Loop::new(SystemDriver::new(on).unwrap());
    let server = second.attach(detached);
    second.accept(server);
    run_until(&mut first, "the upgrade", |first| {
        second.turn(Some(Time::default()));
        first.sessions.get(&client).is_some_and(Session::is_open)
    });
    first
        .session(client)
        .send(Opcode::Text, b"over there")
        .unwrap();
    run_until(&mut second, "the message", |second| {
        first.turn(Some(Time::default()));
        !second.messages(server).is_empty()
    });
    run_until(&mut first, "the echo", |first| {
        second.turn(Some(Time::default()));
        first.messages(client) == [b"over there"]
    });
}

on_each_driver! {
    a_plain_session_moves_mid_traffic_and_loses_nothing,
    a_tls_session_moves_mid_traffic_and_loses_nothing,
    a_session_moves_from_one_driver_to_the_other,
    an_unanswered_request_moves_with_what_followed_it,
}
