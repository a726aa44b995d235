//! What one message costs a service: `cargo run --release -p moonwire-lua --example message_cost`.
//!
//! Each row is the best of several rounds, because every disturbance makes a round slower and none
//! makes it faster; what counts is the time this thread had a processor. Every payload is another
//! one, as from a network.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use moonwire_lua::{Effects, Handler, Instance, Opcode, ServiceSource};

fn main() {
    for (app, message) in [
        ("echo", filler(16)),
        ("echo", filler(128)),
        ("echo", filler(1024)),
        ("echo", filler(16 * 1024)),
        ("amplify", amplify_message()),
    ] {
        let bytes = message.len();
        println!(
            "{app:>8} {bytes:>6} B {:>8.0} ns per message",
            cost_ns(app, message)
        );
    }
}

fn cost_ns(app: &str, mut message: Vec<u8>) -> f64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../apps")
        .join(app);
    let mut instance = Instance::load(&ServiceSource::new(app, folder)).expect("apps load");
    let mut effects = Effects::new();
    let mut best_ns = f64::MAX;
    for round in 0..ROUNDS {
        let start_ns = cpu_ns();
        for number in 0..MESSAGES {
            vary(&mut message, round * MESSAGES + number);
            let handler = Handler::new(u64::from(number % CONNECTIONS)).expect("small");
            let result = instance.message(handler, Opcode::Text, &message, &mut effects);
            result.expect("apps answer");
            assert!(!effects.is_empty());
        }
        let each_ns = (cpu_ns() - start_ns) as f64 / f64::from(MESSAGES);
        best_ns = best_ns.min(each_ns);
    }
    best_ns
}

/// Makes the message another one. LuaJIT hashes long strings by a few bytes, some of them in the
/// middle: strings that are equal there would be slow, and are not what peers send.
fn vary(message: &mut [u8], number: u32) {
    let middle = message.len() / 2 - 4;
    let bits = number.wrapping_mul(0x9E37_79B9);
    for (index, byte) in message[middle..middle + 8].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(bits >> (4 * index)) as usize % 16];
    }
}

/// Processor time of this thread.
fn cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn filler(bytes: usize) -> Vec<u8> {
    vec![b'x'; bytes]
}

/// The message of the latency suite: about 1 KiB.
fn amplify_message() -> Vec<u8> {
    let text = "x".repeat(984);
    let message =
        format!(r#"{{"client_id":123,"msg_id":45,"msg":"{text}","created_at":1763760000123456}}"#);
    message.into_bytes()
}

const ROUNDS: u32 = 10;
const MESSAGES: u32 = 100_000;
const CONNECTIONS: u32 = 1_000;
