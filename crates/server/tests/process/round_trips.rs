//! Pings of the server, and what it tells of them.

use std::time::{Duration, Instant};

use crate::client::{Client, Frame, PING, PONG, TEXT};
use crate::fixture::{EXECUTIONS, Folder};

const NAMES: [&str; 2] = [
    "moonwire_ping_rtt_seconds_count",
    "moonwire_ping_rtt_seconds_bucket",
];

#[test]
fn a_service_reads_the_round_trip_of_its_connection() {
    for execution in EXECUTIONS {
        let server = Folder::new(&format!(
            "[server]\nworkers = 1\n[limits]\nping_interval_ms = 100\npong_timeout_ms = 2000\n\
             [services.rtt]\ntarget = '/rtt'\n{execution}[services.echo]\ntarget = '/echo'\n"
        ))
        .app("rtt", RTT)
        .start();
        let mut client = server.connect("/rtt");
        client.send(TEXT, b"before");
        assert_eq!(next(&mut client, TEXT).text(), "before nil nil");
        let ping = next(&mut client, PING);
        assert_eq!(ping.payload.len(), 8);
        // One that nobody asked for, and after a while the right one, twice.
        client.send(PONG, b"");
        std::thread::sleep(PAUSE);
        client.send(PONG, &ping.payload);
        client.send(PONG, &ping.payload);
        client.send(TEXT, b"after");
        let answer = next(&mut client, TEXT).text().to_owned();
        let words: Vec<_> = answer.split(' ').collect();
        let smoothed_us: f64 = words[1].parse().unwrap();
        assert_eq!((words[0], words[1]), ("after", words[2]), "the first one");
        let bounds = PAUSE.as_micros() as f64..10e6;
        assert!(bounds.contains(&smoothed_us), "{answer}");
        assert_eq!(server.metric(NAMES[0], "service=\"rtt\""), 1);
        assert_eq!(server.metric(NAMES[0], "service=\"echo\""), 0);
        let within = server.metric(NAMES[1], "service=\"rtt\",le=\"0.03\"");
        assert_eq!(within, 0, "it took at least {PAUSE:?}");
        assert_eq!(server.metric(NAMES[1], "service=\"rtt\",le=\"+Inf\""), 1);
    }
}

#[test]
fn a_connection_that_is_not_idle_is_not_pinged_unless_it_is_asked_for() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nidle_timeout_ms = 60_000\n\
         [services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let mut client = server.connect("/echo");
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(client.ask("busy").text(), "busy");
    }
    assert_eq!(server.metric(NAMES[0], "service=\"echo\""), 0);
}

/// The mode that saves bandwidth: whoever says something is known to be there.
#[test]
fn only_silence_is_pinged_and_an_answer_is_as_good_as_a_message() {
    const IDLE: Duration = Duration::from_millis(1000);
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nidle_timeout_ms = 1000\npong_timeout_ms = 20_000\n\
         [services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let mut client = server.connect("/echo");
    let begun = Instant::now();
    let mut said = begun;
    while begun.elapsed() < IDLE * 3 / 2 {
        said = Instant::now();
        // A ping would come before what is asked for.
        assert_eq!(client.ask("busy").text(), "busy");
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..2 {
        let ping = client.receive();
        assert_eq!(ping.opcode, PING);
        assert!(said.elapsed() >= IDLE, "{:?}", said.elapsed());
        said = Instant::now();
        client.send(PONG, &ping.payload);
    }
    assert_eq!(client.ask("still here").text(), "still here");
    assert_eq!(server.metric(NAMES[0], "service=\"echo\""), 2);
}

#[test]
fn nobody_is_pinged_where_there_is_no_idle_timeout() {
    let server = Folder::new(
        "[server]\nworkers = 1\n[limits]\nidle_timeout_ms = 0\npong_timeout_ms = 1\n\
         [services.echo]\ntarget = '/echo'\n",
    )
    .start();
    let mut client = server.connect("/echo");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.ask("silent so far").text(), "silent so far");
}

/// The next frame of this kind. A ping before it is given up, and comes again.
fn next(client: &mut Client, opcode: u8) -> Frame {
    loop {
        let frame = client.receive();
        if frame.opcode == opcode {
            return frame;
        }
    }
}

const PAUSE: Duration = Duration::from_millis(40);

const RTT: &str = "local connection = require('moonwire.connection')
return {
    onStart = function() end, onShutdown = function() end, onDisconnect = function() end,
    onMessage = function(handler, opcode, message)
        local smoothed, last = connection.rtt_us(handler)
        return ws:send(handler, 1, message .. ' ' .. tostring(smoothed) .. ' ' .. tostring(last))
    end,
}";
