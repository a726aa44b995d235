//! Our own records of TLS 1.3 with the libraries of others, in both roles: OpenSSL, BoringSSL in a
//! browser, Go, Python and Node.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::{PATIENCE, Server, moonwire, run};
use super::{page, python};

/// A server whose records are ours.
fn server() -> Server {
    Server::moonwire(&["--dev-tls", "--tls-records", "own", "--driver", "auto"])
}

#[test]
fn python_and_a_browser_echo_over_our_records() {
    let server = server();
    python(&server);
    page(&server);
}

#[test]
fn curl_reads_a_page_over_our_records() {
    let server = server();
    let url = format!("https://{}/metrics", server.address());
    for arguments in [&[][..], &["--tls-max", "1.2"]] {
        let outcome = run(Command::new("curl")
            .args(["-sk", "--fail", &url])
            .args(arguments));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.contains("moonwire_"), "{outcome:?}");
    }
}

/// RFC 8446, 4.6.3: OpenSSL changes its key, and wants ours changed.
#[test]
fn openssl_changes_keys_in_the_middle() {
    let server = server();
    for suite in [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ] {
        let mut client = OpenSsl::connect(&server, suite);
        client.say(
            b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        client.await_bytes(b" 101 ");
        // `K`: it changes its key and wants ours changed; `k`: its own alone.
        for (number, order) in (0_u8..).zip(["", "K\n", "k\n", "K\n"]) {
            client.say(order.as_bytes());
            let text = [b'0' + number; 5];
            // With a mask of zeros.
            client.say(&[&[0x81, 0x85, 0, 0, 0, 0][..], &text].concat());
            client.await_bytes(&[&[0x81, 5][..], &text].concat());
        }
    }
}

/// `openssl s_client`, whose input is sent as it is but for a letter alone in a line.
struct OpenSsl {
    child: std::process::Child,
    input: ChildStdin,
    output: ChildStdout,
    said: Vec<u8>,
}

impl OpenSsl {
    fn connect(server: &Server, suite: &str) -> Self {
        let mut child = Command::new("openssl")
            .args([
                "s_client",
                "-tls1_3",
                "-ciphersuites",
                suite,
                "-connect",
                server.address(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = Self {
            input: child.stdin.take().unwrap(),
            output: child.stdout.take().unwrap(),
            child,
            said: Vec::new(),
        };
        client.await_bytes(suite.as_bytes());
        client.await_bytes(b"---\n");
        client
    }

    /// It looks at what one read gave it: each of these is to be one.
    fn say(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.input.write_all(bytes).unwrap();
            self.input.flush().unwrap();
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn await_bytes(&mut self, wanted: &[u8]) {
        let begin = Instant::now();
        loop {
            let place = self
                .said
                .windows(wanted.len())
                .position(|found| found == wanted);
            if let Some(place) = place {
                self.said.drain(..place + wanted.len());
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{wanted:?} does not come");
            let mut bytes = [0; 4096];
            let length = self.output.read(&mut bytes).unwrap();
            assert!(length > 0, "it ended before {wanted:?}: {:?}", self.said);
            self.said.extend_from_slice(&bytes[..length]);
        }
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn another_generator_echoes_over_our_records() {
    let mut check = moonwire();
    check.args(["lab", "check", "tungstenite-client"]);
    check.env("MOONWIRE_TLS_RECORDS", "own");
    let outcome = run(&mut check);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn our_generator_echoes_with_others_over_our_records() {
    for name in [
        "uwebsockets-cpp",
        "ws",
        "go-gorilla",
        "python-websockets",
        "nginx",
    ] {
        let mut start = moonwire();
        let server = Server::start(start.args(["lab", "start", name, "--tls"]));
        let mut load = moonwire();
        load.args([
            "load",
            &server.url,
            "-k",
            "-c",
            "20",
            "-n",
            "2000",
            "--message-size",
            "20k",
        ]);
        load.args([
            "--tls-records",
            "own",
            "--driver",
            "auto",
            "--slo",
            "lost==0",
        ]);
        let outcome = run(&mut load);
        assert!(matches!(outcome.code, Some(0 | 98)), "{name}: {outcome:?}");
        assert!(outcome.stdout.contains("2,000"), "{name}: {outcome:?}");
    }
}
