//! The echo without Lua: the same to its clients as the one with it.

use crate::client::{BINARY, CLOSE, Client, PING, PONG, TEXT, frame};
use crate::fixture::{Fixture, Folder};

/// The end of the table of each echo.
const ECHOES: [&str; 2] = ["", "builtin = 'echo'\n"];

fn start(limits: &str, echo: &str) -> Fixture {
    Folder::new(&format!(
        "[server]\nworkers = 2\n[limits]\n{limits}[services.echo]\ntarget = '/echo'\n{echo}"
    ))
    .start()
}

#[test]
fn every_message_comes_back_with_its_opcode() {
    for echo in ECHOES {
        let server = start("", echo);
        let mut client = server.connect("/echo");
        let mut bytes = 0;
        let lengths = [0, 1, 125, 126, 65_535, 65_536, 3 << 20];
        for length in lengths {
            let payload = vec![b'm'; length];
            for opcode in [TEXT, BINARY] {
                client.send(opcode, &payload);
                let answer = client.receive();
                assert_eq!((answer.opcode, answer.payload.len()), (opcode, length));
                assert!(answer.payload == payload);
                bytes += length as u64;
            }
        }
        for (name, value) in [
            ("moonwire_messages_in_total", 14),
            ("moonwire_messages_out_total", 14),
            ("moonwire_bytes_in_total", bytes),
            ("moonwire_bytes_out_total", bytes),
            ("moonwire_connected", 1),
        ] {
            assert_eq!(server.metric(name, "service=\"echo\""), value, "{name}");
        }
        client.close();
        server.await_metric("moonwire_connected", "service=\"echo\"", 0);
    }
}

/// Messages that are assembled, others that are not, and a ping between them, all in one read.
#[test]
fn what_comes_in_one_read_is_answered_in_order() {
    for echo in ECHOES {
        let server = start("", echo);
        let mut client = server.connect("/echo");
        let first = |opcode: u8, payload: &[u8]| {
            let mut bytes = frame(opcode, payload);
            bytes[0] &= 0x7f;
            bytes
        };
        let bytes = [
            frame(TEXT, b"one"),
            first(BINARY, b"tw"),
            frame(PING, b"?"),
            frame(0, b"o"),
            frame(TEXT, b""),
            frame(BINARY, b"three"),
        ];
        client.write(&bytes.concat());
        for (opcode, payload) in [
            (TEXT, "one"),
            (PONG, "?"),
            (BINARY, "two"),
            (TEXT, ""),
            (BINARY, "three"),
        ] {
            let answer = client.receive();
            assert_eq!(
                (answer.opcode, &*answer.payload),
                (opcode, payload.as_bytes())
            );
        }
        // In two reads, the second of which begins within the payload.
        let (begin, end) = (frame(TEXT, b"halves"), 9);
        client.write(&begin[..end]);
        client.send_rest_late(&begin[end..]);
        assert_eq!(client.receive().text(), "halves");
        client.close();
    }
}

#[test]
fn its_limits_are_those_of_the_others() {
    for echo in ECHOES {
        let server = start("fragment_bytes = 100\nmessage_bytes_max = 300\n", echo);
        let mut client = server.connect("/echo");
        client.send(TEXT, &[b'a'; 250]);
        let mut sizes = Vec::new();
        loop {
            let (fin, frame) = client.receive_fragment();
            sizes.push(frame.payload.len());
            if fin {
                break;
            }
        }
        assert_eq!(sizes, [100, 150]);
        client.send(TEXT, &[b'a'; 301]);
        assert_eq!(client.receive().code(), 1009);
        let mut other = server.connect("/echo");
        other.send(TEXT, b"\xff");
        assert_eq!(other.receive().code(), 1007);
    }
}

#[test]
fn a_client_that_offers_compression_has_it() {
    let server = Folder::new(
        "[services.echo]\ntarget = '/echo'\nbuiltin = 'echo'\n[services.echo.deflate]\n",
    )
    .start();
    let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let (mut client, head) = Client::upgrade(server.address, "/echo", offer).unwrap();
    assert!(head.contains("permessage-deflate"), "{head}");
    // RFC 7692, 7.2.3.1: "Hello", compressed; short messages come back as they are.
    let mut hello = frame(TEXT, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    hello[0] |= 0x40;
    client.write(&hello);
    assert_eq!(client.receive().text(), "Hello");
    server.stopper.stop();
    assert_eq!(client.receive().opcode, CLOSE);
}

/// What the client does not take is the same problem as elsewhere.
#[test]
fn a_client_that_does_not_read_slows_itself_down() {
    let server = start("", ECHOES[1]);
    let mut client = server.connect("/echo");
    let message = vec![7; 1 << 20];
    let writer = frame(BINARY, &message);
    let mut reader = client.again();
    let sender = std::thread::spawn(move || (0..64).for_each(|_| client.write(&writer)));
    std::thread::sleep(std::time::Duration::from_millis(100));
    for _ in 0..64 {
        assert!(reader.receive().payload == message);
    }
    sender.join().unwrap();
    let full = server.metric("moonwire_failures_total", "kind=\"queue_full\"");
    assert_eq!(full, 0);
}
