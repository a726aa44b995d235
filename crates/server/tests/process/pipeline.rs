//! Clients that ask for more in one write than fits any queue, and read what they are sent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use moonwire_server::Server;

use crate::client::{CLOSE, PING, PONG, TEXT, frame};
use crate::fixture::{EXECUTIONS, Folder};
use crate::tls::{secured, trusting};

/// The answers are thirty times what the queue may hold.
#[test]
fn a_client_that_reads_gets_every_answer() {
    EXECUTIONS.into_iter().for_each(every_answer);
}

fn every_answer(execution: &str) {
    let server = folder("", execution).start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    converse(&mut stream, "/large");
    server.await_metric("moonwire_write_queue_bytes", "large", 0);
    assert_eq!(
        server.metric("moonwire_failures_total", "kind=\"queue_full\""),
        0
    );
}

#[test]
fn a_client_that_reads_gets_every_answer_over_tls() {
    let folder = folder("[tls]\ndev = true\n", "");
    let server = Server::start(folder.load().unwrap()).unwrap();
    let config = trusting(server.certificate().unwrap());
    converse(&mut secured(server.addresses()[0], &config), "/large");
    server.stopper().stop();
    server.wait().unwrap();
}

/// The end of the stream is seen long before the last request can be answered.
#[test]
fn the_end_of_the_stream_comes_after_what_was_sent_before_it() {
    EXECUTIONS.into_iter().for_each(end_of_stream);
}

fn end_of_stream(execution: &str) {
    let server = folder("", execution).start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(&requests("/large")).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    answers(&mut stream);
}

/// A read can hold tens of thousands of small messages, and others wait for the end of the turn.
#[test]
fn one_client_gets_only_a_part_of_a_turn() {
    let server = Folder::new("[server]\nworkers = 1\n[services.count]\ntarget = '/count'\n")
        .app("count", COUNT)
        .start();
    let mut client = server.connect("/count");
    assert_eq!(client.ask("total").text(), "0");
    let turns = || server.metric("moonwire_turns_total", "worker");
    let before = turns();
    let flood: Vec<u8> = frame(TEXT, b"").repeat(40_000);
    client.write(&flood);
    assert_eq!(client.ask("total").text(), "40000");
    let taken = turns() - before;
    assert!(taken >= 40_000 / 130, "{taken} turns");
}

/// The messages take several turns, and the service answers each; a pong or the close frame that
/// came before the answer to an earlier message would say that it had been handled.
#[test]
fn pongs_and_the_close_keep_their_place_among_messages() {
    EXECUTIONS.into_iter().for_each(pongs_in_their_place);
}

fn pongs_in_their_place(execution: &str) {
    let server = Folder::new(&format!(
        "[server]\nworkers = 1\n[services.echo]\ntarget = '/echo'\n{execution}"
    ))
    .start();
    let mut client = server.connect("/echo");
    let mut input = Vec::new();
    for part in 0..20 {
        for number in 0..100 {
            input.extend(frame(TEXT, format!("{part}.{number}").as_bytes()));
        }
        input.extend(frame(PING, format!("{part}").as_bytes()));
    }
    input.extend(frame(CLOSE, &1000_u16.to_be_bytes()));
    client.write(&input);
    for part in 0..20 {
        for number in 0..100 {
            assert_eq!(client.receive().text(), format!("{part}.{number}"));
        }
        let pong = client.receive();
        assert_eq!(
            (pong.opcode, pong.payload),
            (PONG, format!("{part}").into_bytes())
        );
    }
    assert_eq!(client.receive().code(), 1000);
    assert!(client.is_ended());
}

/// Nor does one that the server has told to go.
#[test]
fn one_client_gets_only_a_part_of_a_turn_after_its_close() {
    let server = Folder::new("[server]\nworkers = 1\n[services.count]\ntarget = '/count'\n")
        .app("count", COUNT)
        .start();
    let mut client = server.connect("/count");
    assert_eq!(client.ask("total").text(), "0");
    let turns = || server.metric("moonwire_turns_total", "worker");
    let before = turns();
    client.write(&[frame(TEXT, b"leave"), frame(TEXT, b"").repeat(40_000)].concat());
    client.write(&frame(CLOSE, &1000_u16.to_be_bytes()));
    assert_eq!(client.receive().code(), 1000);
    assert!(client.is_ended());
    let taken = turns() - before;
    assert!(taken >= 40_000 / 130, "{taken} turns");
}

/// A message that takes a whole turn is let go of all the same, though nothing follows it.
#[test]
fn a_large_message_is_not_kept_once_it_is_delivered() {
    let server = Folder::new("[server]\nworkers = 1\n[services.count]\ntarget = '/count'\n")
        .app("count", COUNT)
        .start();
    let held = ("moonwire_memory_bytes", "part=\"message\"");
    let mut client = server.connect("/count");
    client.write(&frame(TEXT, &[b'a'; 3 << 20]));
    server.await_metric("moonwire_messages_in_total", "count", 1);
    server.await_metric(held.0, held.1, 0);
    assert_eq!(client.ask("total").text(), "1");
}

const COUNT: &str = "
local count = { total = 0 }
function count.onStart() end
function count.onShutdown() end
function count.onDisconnect(handler) end
function count.onMessage(handler, opcode, message)
  if message == 'total' then
    ws:send(handler, opcode, tostring(count.total))
  else
    count.total = count.total + 1
  end
  return message ~= 'leave'
end
return count
";

/// One write with everything; then everything is read, the end of the stream included.
fn converse(stream: &mut (impl Read + Write), target: &str) {
    stream.write_all(&requests(target)).unwrap();
    stream.flush().unwrap();
    answers(stream);
}

/// The upgrade, many small messages and a close frame.
fn requests(target: &str) -> Vec<u8> {
    let mut bytes = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes();
    for number in 0..REQUESTS {
        bytes.extend(frame(TEXT, number.to_string().as_bytes()));
    }
    bytes.extend(frame(CLOSE, &1000u16.to_be_bytes()));
    bytes
}

/// Each answer in its order, then the close frame and the end.
fn answers(stream: &mut impl Read) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(take::<1>(stream));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    let mut answer = vec![0; ANSWER_BYTES];
    for number in 0..REQUESTS {
        assert_eq!(take::<2>(stream), [0x81, 126], "answer {number}");
        let length = usize::from(u16::from_be_bytes(take(stream)));
        assert_eq!(length, ANSWER_BYTES);
        stream.read_exact(&mut answer).unwrap();
        let text = std::str::from_utf8(&answer).unwrap();
        assert_eq!(text.trim_end_matches('.'), number.to_string());
    }
    assert_eq!(take(stream), [0x88, 2, 0x03, 0xe8]);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn take<const N: usize>(stream: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn folder(tls: &str, execution: &str) -> Folder {
    Folder::new(&format!(
        "[server]\nworkers = 1\n{tls}[limits]\nmessage_bytes_max = 65536\n\
         write_queue_bytes_max = 1048576\n[services.large]\ntarget = '/large'\n{execution}"
    ))
    .app("large", LARGE)
}

const REQUESTS: usize = 2000;
const ANSWER_BYTES: usize = 16_384;

const LARGE: &str = "
local large = {}
function large.onStart() end
function large.onShutdown() end
function large.onDisconnect(handler) end
function large.onMessage(handler, opcode, message)
  return ws:send(handler, opcode, message .. ('.'):rep(16384 - #message))
end
return large
";
