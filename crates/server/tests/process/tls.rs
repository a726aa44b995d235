//! The same over TLS, with a client that rustls makes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use moonwire_server::Server;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::{TEXT, frame};
use crate::fixture::Folder;

/// One instance on two workers: of 20 connections some change their worker after the request, with
/// their keys and counters, or they could not be read any more.
#[test]
fn tls_connections_change_hands_too() {
    let folder = Folder::new(
        "[server]\nworkers = 2\n[tls]\ndev = true\n[services.echo]\ntarget = '/echo'\n\
         instances = 1\n",
    );
    let server = Server::start(folder.load().unwrap()).unwrap();
    let client_config = trusting(server.certificate().unwrap());
    for round in 0..20 {
        let mut stream = secured(server.addresses()[0], &client_config);
        stream.write_all(REQUEST).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "round {round}");
        for text in [&b"first"[..], b"other"] {
            stream.write_all(&frame(TEXT, text)).unwrap();
            let mut reply = [0; 7];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(
                (&reply[..2], &reply[2..]),
                (&[0x81, 5][..], text),
                "round {round}"
            );
        }
    }
    server.stopper().stop();
    let table = server.wait().unwrap();
    assert!(table.contains("20           40"), "{table}");
}

/// A client may end its stream by TLS alone and leave the TCP connection as it is.
#[test]
fn close_notify_is_the_end_of_the_stream() {
    let folder = Folder::new(
        "[server]\nworkers = 1\n[tls]\ndev = true\n[limits]\nidle_timeout_ms = 0\n\
         [services.echo]\ntarget = '/echo'\n",
    );
    let server = Server::start(folder.load().unwrap()).unwrap();
    let client_config = trusting(server.certificate().unwrap());
    let mut stream = secured(server.addresses()[0], &client_config);
    stream.write_all(REQUEST).unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    // The beginning of a frame comes with it.
    stream.write_all(&frame(TEXT, b"cut off")[..3]).unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let mut rest = Vec::new();
    // The server ends its side, and not because of ours: TCP is still open.
    if let Err(error) = stream.sock.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    server.stopper().stop();
    let table = server.wait().unwrap();
    assert!(table.contains("lost"), "{table}");
}

/// A connection on which nothing was sent yet.
pub(crate) fn secured(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::clone(config), name).unwrap(),
        tcp,
    )
}

pub(crate) fn trusting(pem: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

const REQUEST: &[u8] = b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
