//! The examples of the module's page, as they stand there.

use std::sync::Arc;
use std::thread;

use moonwire_lua::LoadOptions;

use super::peer::{Manner, RawPeer, first_frame};
use super::{Outgoing, run_service};

const PAGE: &str = include_str!("../../../../../docs/modules/cws.md");
const URL: &str = "ws://127.0.0.1:5083/echo";

/// The code of the example that returns `name`, with another URL.
fn example(name: &str, url: &str) -> String {
    let last = format!("return {name}\n");
    let blocks = PAGE.split("```lua\n").skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let block = blocks.find(|block| block.ends_with(&last)).unwrap();
    assert!(block.contains(URL), "{block}");
    block.replace(URL, url)
}

#[test]
fn the_service_that_asks_gets_its_answer() {
    let peer = RawPeer::start(Manner::Listen(b"\x81\x05hello"));
    let options = LoadOptions {
        connector: Some(Arc::new(Outgoing::default())),
        ..LoadOptions::default()
    };
    run_service("asker", &example("asker", &peer.url), &options).unwrap();
    let (_, rest) = peer.finish();
    assert_eq!(first_frame(&rest), (1, b"hello".to_vec()));
}

/// It connects again after the end of its connection, which nobody takes any more, and stops then.
#[test]
fn the_service_that_stays_connected_stops_when_it_must() {
    let peer = RawPeer::start(Manner::Leave(b"\x81\x04tick\x88\x00"));
    let options = LoadOptions {
        connector: Some(Arc::new(Outgoing::default())),
        ..LoadOptions::default()
    };
    let code = example("feed", &peer.url);
    let stop = options.stop.clone();
    let stopper = thread::spawn(move || {
        peer.finish();
        stop.set();
    });
    run_service("feed", &code, &options).unwrap();
    stopper.join().unwrap();
}
