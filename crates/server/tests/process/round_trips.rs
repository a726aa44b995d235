//! Pings of the server, and what it tells of them.

use std::time::Duration;

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
