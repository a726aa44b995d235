//! Attacks a server of one's own at a bounded rate, for the benchmark of what its neighbours feel.
//!
//!   attacker list                                     names and rates, one a line
//!   attacker ADDRESS NAME SECONDS                     one attack or siege at its rate
//!   attacker ADDRESS hold CONNECTIONS SECONDS         handshakes that trickle and never end
//!
//! Prints how many times it attacked. It attacks loopback addresses only.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../tests/process/attacks/catalogue.rs"]
#[expect(dead_code, reason = "how an attack must end is for the tests")]
mod catalogue;
#[path = "../tests/process/attacks/strike.rs"]
#[expect(dead_code, reason = "tests strike as fast as they can")]
mod strike;
#[path = "../tests/process/attacks/wire.rs"]
mod wire;

use catalogue::{ATTACKS, SIEGES};
use strike::{Besieger, connect};

#[expect(clippy::print_stdout, reason = "what it says is its result")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["list"] => {
            for attack in ATTACKS {
                println!("{}\t{}\t{}", attack.name, attack.per_s, attack.reference);
            }
            for siege in SIEGES {
                println!("{}\t{}\t{}", siege.name, siege.per_s, siege.reference);
            }
        }
        [address, "hold", connections, seconds] => {
            let held = hold(loopback(address)?, connections.parse()?, seconds.parse()?)?;
            println!("held {held}");
        }
        [address, name, seconds] => {
            let (address, seconds) = (loopback(address)?, seconds.parse()?);
            let attack = ATTACKS.iter().find(|attack| attack.name == name);
            let siege = SIEGES.iter().find(|siege| siege.name == name);
            let strikes = match (attack, siege) {
                (Some(attack), _) => {
                    strike_often(address, &(attack.bytes)(), attack.per_s, seconds)?
                }
                (None, Some(siege)) => besiege(address, &(siege.bytes)(), siege.per_s, seconds)?,
                (None, None) => return Err(format!("there is no attack {name:?}: see list").into()),
            };
            println!("strikes {strikes}");
        }
        _ => {
            return Err(
                "usage: attacker list | ADDRESS NAME SECONDS | ADDRESS hold N SECONDS".into(),
            );
        }
    }
    Ok(())
}

fn loopback(address: &str) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let address: SocketAddr = address.parse()?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} is not a loopback address").into()),
    }
}

/// Strikes `per_s` times a second, one after the other, each at a random moment of its part of the
/// second: at even intervals all or none would meet a message of a neighbour who is as even.
fn strike_often(address: SocketAddr, bytes: &[u8], per_s: u32, seconds: u32) -> io::Result<u32> {
    let begin = Instant::now();
    let mut strikes = 0;
    while begin.elapsed() < Duration::from_secs(seconds.into()) {
        let due = begin + due_after(strikes, per_s);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        strike_paced(&connect(address, source(strikes))?, bytes);
        strikes += 1;
    }
    Ok(strikes)
}

/// Sends all of it as a line of a gigabit a second brings it, part by part, each when it would be
/// there, and reads to the end. An answer is short, so it can wait: a thread to read it would
/// take more of the processor that the neighbour's client runs on than the attack does.
fn strike_paced(mut stream: &TcpStream, bytes: &[u8]) {
    let begin = Instant::now();
    for (number, part) in bytes.chunks(PART_BYTES).enumerate() {
        let sent_bytes = (number * PART_BYTES) as u64;
        let due = begin + Duration::from_nanos(sent_bytes * 1_000_000_000 / LINE_BYTES_PER_S);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if stream.write_all(part).is_err() {
            // The server has ended it early.
            break;
        }
    }
    stream.read_to_end(&mut Vec::new()).ok();
}

/// A gigabit a second.
const LINE_BYTES_PER_S: u64 = 125_000_000;
/// What is sent in one go. The kernel carries it over the loopback in the time of the sender, who
/// cannot be interrupted meanwhile by those it shares a processor with.
const PART_BYTES: usize = 8 * 1024;

/// A random moment of the part of a second that belongs to this strike.
fn due_after(strike: u32, per_s: u32) -> Duration {
    Duration::from_secs_f64((f64::from(strike) + fastrand::f64()) / f64::from(per_s))
}

/// Opens `per_s` connections a second, each at a random moment of its part of the second, and
/// leaves each open for a while.
fn besiege(address: SocketAddr, bytes: &[u8], per_s: u32, seconds: u32) -> io::Result<u32> {
    let (begin, mut strikes) = (Instant::now(), 0);
    let mut besiegers: VecDeque<(Instant, Besieger)> = VecDeque::new();
    while begin.elapsed() < Duration::from_secs(seconds.into()) {
        let due = begin + due_after(strikes, per_s);
        while Instant::now() < due {
            for (_, besieger) in &mut besiegers {
                besieger.go_on(bytes, PART_BYTES);
            }
            let left = due.saturating_duration_since(Instant::now());
            thread::sleep(left.min(BESIEGERS_REST));
        }
        while besiegers
            .front()
            .is_some_and(|(since, _)| since.elapsed() > SIEGE)
        {
            besiegers.pop_front();
        }
        let besieger = Besieger::new(connect(address, source(strikes))?)?;
        besiegers.push_back((Instant::now(), besieger));
        strikes += 1;
    }
    Ok(strikes)
}

/// How long each connection of a siege stays.
const SIEGE: Duration = Duration::from_secs(2);
/// How long besiegers wait until they send the next part.
const BESIEGERS_REST: Duration = Duration::from_micros(500);

/// Opens connections whose request never ends, and sends a byte of each now and then. Those that
/// the server ends are opened again.
fn hold(address: SocketAddr, connections: u32, seconds: u32) -> io::Result<usize> {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    let begun = |number| {
        let mut stream = connect(address, source(number))?;
        stream.write_all(b"GET /echo")?;
        stream.set_nonblocking(true)?;
        io::Result::Ok(stream)
    };
    let mut held = (0..connections).map(begun).collect::<Result<Vec<_>, _>>()?;
    let mut opened = connections;
    say_held(held.len());
    while Instant::now() < end {
        for stream in &mut held {
            let nothing = stream.read(&mut [0; 512]).map_err(|error| error.kind());
            let is_open = nothing == Err(io::ErrorKind::WouldBlock);
            if !is_open || stream.write_all(b"/").is_err() {
                opened += 1;
                *stream = begun(opened)?;
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(held.len())
}

#[expect(clippy::print_stdout, reason = "the benchmark waits for it")]
fn say_held(held: usize) {
    println!("{held} handshakes are held");
}

/// One of many addresses, so that the ports of one suffice.
fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 3, 1 + (number % 200) as u8)
}
