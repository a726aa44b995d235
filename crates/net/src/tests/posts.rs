//! What becomes of bytes whose end nobody waits for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;

use super::drivers::{World, look, next, pair, world};
use crate::driver::{Completion, Driver, SocketId, Submission};
use crate::tests::on_each_driver;
use crate::{DriverChoice, SystemDriver, Time};

/// Recognisable bytes, other ones for each number. Fewer than are tried at once.
fn piece(number: usize) -> Vec<u8> {
    (0..20_000)
        .map(|place| (number * 31 + place % 251) as u8)
        .collect()
}

fn pieces(count: usize) -> Vec<u8> {
    (0..count).flat_map(piece).collect()
}

/// Reads so many bytes on a thread of its own, which gives the peer back with them.
fn read(mut peer: TcpStream, length: usize) -> JoinHandle<(Vec<u8>, TcpStream)> {
    std::thread::spawn(move || {
        let mut received = vec![0; length];
        peer.read_exact(&mut received).unwrap();
        (received, peer)
    })
}

/// Whether the buffer is in flight, told of at once or at the end of the turn.
fn is_in_flight(driver: &mut SystemDriver, submission: &Submission) -> bool {
    let told = look(driver);
    assert!(told.len() <= 1, "{told:?}");
    let is_blocked = told.iter().any(|told| told.starts_with("Blocked"));
    is_blocked || matches!(submission, Submission::InFlight)
}

/// Posts one piece a turn until the socket is full; how many, the last one being in flight.
fn fill(driver: &mut SystemDriver, socket: SocketId) -> usize {
    for number in 0..10_000 {
        let submission = driver.post(socket, piece(number));
        if is_in_flight(driver, &submission) {
            return number + 1;
        }
    }
    panic!("the socket is never full")
}

fn posts_of_one_turn_arrive_in_their_order(on: DriverChoice) {
    let mut world = world(on);
    let first = world.driver.post(world.socket, b"one".to_vec());
    assert!(matches!(first, Submission::Done(buffer) if buffer.is_empty()));
    let second = world.driver.post(world.socket, b"two".to_vec());
    if let Submission::InFlight = second {
        let told = next(&mut world.driver);
        assert!(matches!(told, Completion::Sent { result: Ok(()), .. }));
    }
    assert_eq!(look(&mut world.driver), [""; 0]);
    let third = world.driver.post(world.socket, b"three".to_vec());
    assert!(matches!(third, Submission::Done(_)));
    assert_eq!(look(&mut world.driver), [""; 0]);
    let mut received = [0; 11];
    world.peer.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"onetwothree");
}

fn a_post_right_before_a_close_arrives(on: DriverChoice) {
    let mut world = world(on);
    let _ = world.driver.post(world.socket, b"last words".to_vec());
    world.driver.close(world.socket);
    assert_eq!(look(&mut world.driver), [""; 0]);
    let mut words = String::new();
    world.peer.read_to_string(&mut words).unwrap();
    assert_eq!(words, "last words");
}

fn a_post_that_does_not_fit_is_in_flight_and_loses_nothing(on: DriverChoice) {
    let World {
        mut driver,
        socket,
        peer,
        ..
    } = world(on);
    let count = fill(&mut driver, socket);
    assert!(driver.untaken_bytes(socket) > 0);
    let sent = pieces(count);
    let reader = read(peer, sent.len());
    let told = next(&mut driver);
    assert!(
        matches!(&told, Completion::Sent { socket: of, result: Ok(()), .. } if *of == socket),
        "{told:?}"
    );
    let (received, mut peer) = reader.join().unwrap();
    assert!(received == sent);
    // And it goes on.
    let after = driver.post(socket, b"after".to_vec());
    assert!(!is_in_flight(&mut driver, &after));
    let mut received = [0; 5];
    peer.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"after");
}

fn what_is_sent_behind_a_full_socket_comes_after_it(on: DriverChoice) {
    let World { driver, socket, .. } = &mut world(on);
    let most = fill(driver, *socket);
    // Around the end of the room: behind one that fits, that fits in part, and that does not.
    for before in most.saturating_sub(3)..most + 1 {
        let World {
            mut driver,
            socket,
            peer,
            ..
        } = world(on);
        let mut sent = Vec::new();
        let mut is_in_flight_now = false;
        for number in 0..before {
            let submission = driver.post(socket, piece(number));
            sent.extend(piece(number));
            is_in_flight_now = is_in_flight(&mut driver, &submission);
            if is_in_flight_now {
                break;
            }
        }
        if !is_in_flight_now {
            let first = driver.post(socket, piece(before));
            sent.extend(piece(before));
            if let Submission::Done(_) = first {
                let _ = driver.send(socket, b"behind".to_vec());
                sent.extend(b"behind");
            }
        }
        let reader = read(peer, sent.len());
        while !reader.is_finished() {
            // It wakes by itself when there is something to go on with, and when all is read.
            let soon = driver.now() + std::time::Duration::from_millis(100);
            driver.wait(Some(soon)).unwrap();
            while driver.next().is_some() {}
        }
        assert!(reader.join().unwrap().0 == sent, "after {before}");
    }
}

/// Of two sockets one is full: the other one does not wait for it, nor what is to follow there.
fn a_full_socket_holds_up_no_other(on: DriverChoice) {
    let World {
        mut driver,
        socket: full,
        addr,
        ..
    } = world(on);
    let (other, mut other_peer) = pair(&mut driver, addr);
    let mut is_full = false;
    for number in 0..10_000 {
        let submission = driver.post(full, piece(number));
        let _ = driver.post(other, b"one".to_vec());
        driver.wait(Some(Time::default())).unwrap();
        let mut told = Vec::new();
        while let Some(completion) = driver.next() {
            assert_eq!(completion.depends_on(), Some(full), "{completion:?}");
            told.push(completion);
        }
        let mut received = [0; 3];
        other_peer.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"one");
        if !told.is_empty() || matches!(submission, Submission::InFlight) {
            is_full = true;
            break;
        }
    }
    assert!(is_full);
    for _ in 0..3 {
        let posted = driver.post(other, b"two".to_vec());
        assert!(matches!(posted, Submission::Done(_)));
        assert_eq!(look(&mut driver), [""; 0]);
    }
    let mut received = [0; 9];
    other_peer.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"twotwotwo");
}

/// Before `Blocked` is taken, more may be sent: it is then what is in flight.
fn more_may_be_sent_before_it_is_told_that_there_is_no_room(on: DriverChoice) {
    let World {
        mut driver,
        socket,
        peer,
        ..
    } = world(on);
    let mut sent = Vec::new();
    for number in 0..10_000 {
        let submission = driver.post(socket, piece(number));
        sent.extend(piece(number));
        driver.wait(Some(Time::default())).unwrap();
        if let Submission::InFlight = submission {
            break;
        }
        if driver.untaken_bytes(socket) > 0 && number > 0 {
            // It may be full; if it is, nobody was told yet.
            if let Submission::InFlight = driver.post(socket, b"more".to_vec()) {
                sent.extend(b"more");
                break;
            }
            sent.extend(b"more");
        }
        while driver.next().is_some() {}
    }
    let reader = read(peer, sent.len());
    let told = next(&mut driver);
    assert!(
        matches!(&told, Completion::Sent { socket: of, result: Ok(()), .. } if *of == socket),
        "{told:?}"
    );
    let (received, _peer) = reader.join().unwrap();
    assert!(received == sent);
    assert_eq!(look(&mut driver), [""; 0]);
}

fn a_connection_detaches_with_what_was_posted_in_vain(on: DriverChoice) {
    let World { driver, socket, .. } = &mut world(on);
    let most = fill(driver, *socket);
    for before in most.saturating_sub(3)..most + 1 {
        let World {
            mut driver,
            socket,
            mut peer,
            ..
        } = world(on);
        let mut sent = Vec::new();
        for number in 0..=before {
            let submission = driver.post(socket, piece(number));
            sent.extend(piece(number));
            if number < before && is_in_flight(&mut driver, &submission) {
                break;
            }
        }
        driver.detach(socket);
        let completion = next(&mut driver);
        let Completion::Detached {
            transport, unsent, ..
        } = completion
        else {
            panic!("{completion:?}")
        };
        let fd = transport.into_fd().unwrap();
        rustix::io::ioctl_fionbio(&fd, false).unwrap();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            peer.read_to_end(&mut received).unwrap();
            received
        });
        let mut rest = TcpStream::from(fd);
        rest.write_all(&unsent).unwrap();
        drop(rest);
        assert!(reader.join().unwrap() == sent, "after {before}");
    }
}

fn a_post_to_a_dead_connection_fails_it(on: DriverChoice) {
    let World {
        mut driver,
        socket,
        peer,
        ..
    } = world(on);
    driver.pause_receive(socket);
    assert_eq!(look(&mut driver), [""; 0]);
    socket2::SockRef::from(&peer)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(peer);
    let _ = driver.post(socket, b"lost".to_vec());
    let told = next(&mut driver);
    let has_failed = matches!(
        &told,
        Completion::Failed { .. } | Completion::Sent { result: Err(_), .. }
    );
    assert!(has_failed && told.depends_on() == Some(socket), "{told:?}");
}

on_each_driver! {
    posts_of_one_turn_arrive_in_their_order,
    a_post_right_before_a_close_arrives,
    a_post_that_does_not_fit_is_in_flight_and_loses_nothing,
    what_is_sent_behind_a_full_socket_comes_after_it,
    a_full_socket_holds_up_no_other,
    more_may_be_sent_before_it_is_told_that_there_is_no_room,
    a_connection_detaches_with_what_was_posted_in_vain,
    a_post_to_a_dead_connection_fails_it,
}
