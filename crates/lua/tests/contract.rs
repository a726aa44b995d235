//! The service contract, driven without a server.

mod harness;

use harness::{Service, handler};
use moonwire_lua::{Effect, Effects, Opcode, Outcome};

#[test]
fn a_message_comes_back_as_an_effect() {
    let mut service = Service::load("function s.onMessage(h, o, m) return ws:send(h, o, m) end");
    let mut effects = Effects::new();
    let outcome = service
        .instance
        .message(handler(7), Opcode::Text, b"hello", &mut effects);
    assert_eq!(outcome.unwrap(), Outcome::Continue);
    let sent: Vec<_> = effects.iter().collect();
    assert_eq!(
        sent,
        [Effect::Send {
            handler: handler(7),
            opcode: Opcode::Text,
            payload: b"hello"
        }]
    );
}
