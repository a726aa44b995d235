//! The null server answers as the servers do whose place it takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use moonwire_load::{
    Control, FanOut, LoadError, NullServer, Pacing, Scenario, Settings, Stop, Target, TimeUnit,
    Workload, null_server,
};
use moonwire_report::{Cell, OneWay};

/// One on a thread of its own.
struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), LoadError>>>,
}

impl Running {
    fn start() -> Self {
        let (sender, address) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let server = NullServer {
                driver: moonwire_load::DriverChoice::default(),
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                tls: None,
                replies: 4,
            };
            null_server(&server, &stopped, &mut |address| {
                sender.send(address).expect("the test waits");
            })
        });
        Self {
            address: address.recv().expect("it listens"),
            stop,
            thread: Some(thread),
        }
    }

    fn load(&self, path: &str, change: impl FnOnce(&mut Settings)) -> Cell {
        let url = format!("ws://{}{path}", self.address);
        let mut settings = Settings {
            targets: vec![Target::parse(&url).expect("a URL")],
            connections: 8,
            pacing: Pacing::Closed { in_flight: 2 },
            stop: Stop::Messages(800),
            ..Settings::default()
        };
        change(&mut settings);
        let scenario = Scenario::new(settings).expect("it can run");
        let outcome = moonwire_load::run(&scenario, &mut Control::default());
        outcome.expect("it runs").cell
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            panic!("{error}");
        }
    }
}

fn assert_whole(cell: &Cell) {
    let messages = &cell.messages;
    assert_eq!(
        (messages.sent, messages.lost),
        (800, 0),
        "{:?}",
        cell.errors
    );
    assert_eq!((messages.corrupt, messages.reordered), (0, 0));
    assert!(cell.errors.is_empty(), "{:?}", cell.errors);
}

#[test]
fn it_echoes_and_closes_each_connection_after_its_messages() {
    let server = Running::start();
    assert_whole(&server.load("/echo", |_| {}));
    let short = server.load("/echo", |settings| {
        settings.connections = 80;
        settings.messages_per_connection = Some(10);
        settings.open_max = Some(8);
        settings.barrier = false;
        settings.stop = Stop::Schedule;
    });
    assert_whole(&short);
    assert_eq!(short.closes.get("1000"), Some(&80), "{:?}", short.closes);
}

#[test]
fn it_answers_each_json_message_with_the_replies_of_the_lab() {
    let server = Running::start();
    let cell = server.load("/amplify", |settings| {
        settings.workload = Workload::Amplify {
            size: 300,
            time_unit: TimeUnit::Microseconds,
        };
        settings.replies = 4;
    });
    assert_whole(&cell);
    assert_eq!(cell.messages.received, 3200);
    assert!(matches!(cell.latency.one_way, OneWay::Measured { .. }));
}

#[test]
fn all_subscribers_hear_what_one_says() {
    let server = Running::start();
    let cell = server.load("/broadcast", |settings| {
        settings.fan_out = Some(FanOut {
            publishers: 1,
            silent: 0,
        });
    });
    assert_whole(&cell);
    let fan_out = cell.fan_out.as_ref().unwrap();
    assert_eq!((fan_out.copies, fan_out.unreached), (6400, 0));
}

#[test]
fn another_path_is_refused_and_the_next_one_served() {
    let server = Running::start();
    let refused = server.load("/nothing", |_| {});
    assert_eq!((refused.connects.ok, refused.messages.sent), (0, 0));
    assert_whole(&server.load("/echo", |_| {}));
}
