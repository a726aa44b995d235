//! The examples of the pages in docs/modules, each run as it is written.

use moonwire_lua::{
    Broadcasts, Effect, Effects, Instance, LoadOptions, Module, Opcode, Outcome, ServiceSource,
    Standalone,
};

use crate::harness::handler;

/// Counts what a standalone example broadcasts.
struct Counted(std::sync::mpsc::Sender<u64>);

impl Broadcasts for Counted {
    fn broadcast(&self, channel: u64, _: Vec<u8>) -> Result<(), String> {
        self.0.send(channel).map_err(|error| error.to_string())
    }
}

#[test]
fn examples_do_what_they_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/modules");
    let mut pages = 0;
    // The others need what this room does not have, and are run by those that have it.
    for name in ["ws", "nljson", "bcast", "mqr", "nap", "time", "murmur"] {
        let page = std::fs::read_to_string(format!("{folder}/{name}.md")).unwrap();
        for example in page.split("```lua\n").skip(1) {
            let code = example.split("```").next().unwrap();
            run(name, code);
            pages += 1;
        }
    }
    assert_eq!(pages, 7);
}

fn run(name: &str, code: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.lua"), code).unwrap();
    let source = ServiceSource {
        preload: Module::named(name).into_iter().collect(),
        ..ServiceSource::new("s", folder.path())
    };
    let options = LoadOptions::default();
    if code.contains(".run()") {
        let (sender, sent) = std::sync::mpsc::channel();
        let mut service =
            Standalone::load(&source, &options, 1, Box::new(Counted(sender))).unwrap();
        service.init().unwrap();
        service.run().unwrap();
        drop(service);
        assert_eq!(sent.iter().collect::<Vec<_>>(), [1000], "{name}");
        return;
    }
    let mut instance = Instance::load_with(&source, &options).unwrap();
    let mut effects = Effects::new();
    instance.start(&mut effects).unwrap();
    let outcome = instance.message(handler(1), Opcode::Text, b"hello", &mut effects);
    assert_eq!(outcome.unwrap(), Outcome::Continue, "{name}");
    let text = |effect| match effect {
        Effect::Send { payload, .. } => Some(String::from_utf8_lossy(payload).into_owned()),
        Effect::Close { .. }
        | Effect::Subscribe { .. }
        | Effect::Unsubscribe { .. }
        | Effect::Broadcast { .. } => None,
    };
    let sent: Vec<_> = effects.iter().filter_map(text).collect();
    let said: Vec<_> = code
        .lines()
        .filter_map(|line| line.split_once("--> "))
        .map(|(_, answer)| answer)
        .collect();
    assert_eq!(sent, said, "{name}");
    instance.disconnect(handler(1), &mut effects).unwrap();
    instance.shutdown(&mut effects).unwrap();
}
