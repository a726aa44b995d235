//! tokio-tungstenite on both sides: a client of our server, and a server for our generator.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::{accept_async, client_async};

use crate::harness::{Server, certificate, load};
use crate::trust::Anyone;

#[test]
fn a_client_echoes() {
    let server = Server::moonwire(&[]);
    runtime().block_on(async {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        echo(stream, &server).await;
    });
}

#[test]
fn a_client_echoes_over_tls() {
    let server = Server::moonwire(&["--dev-tls"]);
    assert!(server.url.starts_with("wss:"), "{}", server.url);
    runtime().block_on(async {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        echo(connector().connect(name, stream).await.unwrap(), &server).await;
    });
}

#[test]
fn the_generator_loses_nothing() {
    let echo = Echo::start(None);
    load::assert_no_loss(&echo.url);
}

#[test]
fn the_generator_loses_nothing_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::start(Some(acceptor(&certificate::write(folder.path()))));
    load::assert_no_loss(&echo.url);
}

/// Text, binary, 1 MiB in fragments, and a clean close.
async fn echo(stream: impl AsyncRead + AsyncWrite + Unpin, server: &Server) {
    let request = format!("ws://{}/echo", server.address());
    let (mut socket, _) = client_async(request, stream).await.unwrap();
    let small = [
        Message::text("Grüße, 世界 🌙"),
        Message::binary((0..=255).collect::<Vec<u8>>()),
        Message::text(""),
        Message::binary(vec![]),
    ];
    for message in small {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    let mut whole = Vec::new();
    for index in 0..PIECES {
        let piece = vec![u8::try_from(index).unwrap(); PIECE_BYTES];
        let data = if index == 0 {
            Data::Binary
        } else {
            Data::Continue
        };
        whole.extend_from_slice(&piece);
        let frame = Frame::message(piece, OpCode::Data(data), index + 1 == PIECES);
        socket.send(Message::Frame(frame)).await.unwrap();
    }
    assert!(
        socket.next().await.unwrap().unwrap() == Message::binary(whole),
        "1 MiB changed"
    );
    let goodbye = CloseFrame {
        code: CloseCode::Normal,
        reason: "done".into(),
    };
    socket.close(Some(goodbye)).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    let Message::Close(Some(frame)) = answer else {
        panic!("{answer:?} instead of a close");
    };
    assert_eq!(frame.code, CloseCode::Normal);
    assert!(
        socket.next().await.is_none(),
        "the server ends the connection after the close"
    );
}

/// An echo server of tokio-tungstenite in a thread that lives as long as the tests.
pub(crate) struct Echo {
    pub(crate) url: String,
    seen: Arc<Mutex<Seen>>,
}

/// What it saw of its clients.
#[derive(Default)]
struct Seen {
    messages: u64,
    /// Code and reason of each closing frame.
    farewells: Vec<(u16, String)>,
}

impl Seen {
    fn note(&mut self, message: &Message) {
        self.messages += u64::from(message.is_text() || message.is_binary());
        if let Message::Close(Some(frame)) = message {
            let farewell = (frame.code.into(), frame.reason.to_string());
            self.farewells.push(farewell);
        }
    }
}

impl Echo {
    pub(crate) fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let scheme = if tls.is_some() { "wss" } else { "ws" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Seen>>::default();
        let noted = Arc::clone(&seen);
        std::thread::spawn(move || runtime().block_on(serve(listener, tls, noted)));
        Self { url, seen }
    }

    /// Messages that it was sent.
    pub(crate) fn messages(&self) -> u64 {
        self.seen.lock().unwrap().messages
    }

    /// Code and reason of each closing frame that it was sent.
    pub(crate) fn farewells(&self) -> Vec<(u16, String)> {
        self.seen.lock().unwrap().farewells.clone()
    }
}

async fn serve(listener: std::net::TcpListener, tls: Option<TlsAcceptor>, seen: Arc<Mutex<Seen>>) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let (tls, seen) = (tls.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            match tls {
                Some(tls) => reply(tls.accept(stream).await.unwrap(), &seen).await,
                None => reply(stream, &seen).await,
            }
        });
    }
}

async fn reply(stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Seen>) {
    let mut socket = accept_async(stream).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        let echoed = message.is_text() || message.is_binary();
        seen.lock().unwrap().note(&message);
        if echoed && socket.send(message).await.is_err() {
            break;
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// TLS with the certificate and the key in these files.
pub(crate) fn acceptor((certificate, key): &(PathBuf, PathBuf)) -> TlsAcceptor {
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(certificate).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(key).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn connector() -> TlsConnector {
    let config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

const PIECES: usize = 64;
const PIECE_BYTES: usize = 16 * 1024;
