//! An echo on fastwebsockets.
//!
//! ADDRESS=IP fastwebsockets PORT WORKERS [CERTIFICATE KEY]

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use fastwebsockets::{FragmentCollector, OpCode, upgrade};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (port, workers, acceptor) = match arguments[..] {
        ["--version"] => {
            println!("fastwebsockets {}", version());
            return Ok(());
        }
        [port, workers] => (port, workers, None),
        [port, workers, certificate, key] => (port, workers, Some(tls(certificate, key)?)),
        _ => return Err("usage: fastwebsockets PORT WORKERS [CERTIFICATE KEY]".into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.parse()?)
        .enable_all()
        .build()?;
    let port = port.parse()?;
    let address: IpAddr = std::env::var("ADDRESS")?.parse()?;
    runtime.block_on(async move {
        let listener = listen(address, port)?;
        println!("listening on port {port}, {workers} workers");
        // Accepted by a worker: the thread that waits here is none of them.
        tokio::spawn(accept(listener, acceptor)).await??;
        Ok(())
    })
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // What one connection ends with is no matter of the others.
            let _ = serve(stream, acceptor).await;
        });
    }
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    match acceptor {
        Some(acceptor) => echo(acceptor.accept(stream).await?).await,
        None => echo(stream).await,
    }
}

async fn echo(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(), Failure> {
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    Ok(connection.with_upgrades().await?)
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Failure> {
    let (response, upgrade) = upgrade::upgrade(&mut request)?;
    tokio::spawn(async move {
        // What one connection ends with is no matter of the others.
        let _ = messages(upgrade).await;
    });
    Ok(response)
}

async fn messages(upgrade: upgrade::UpgradeFut) -> Result<(), Failure> {
    let mut socket = upgrade.await?;
    // As moonwire by default: 16 MiB for a message.
    socket.set_max_message_size(16 << 20);
    let mut socket = FragmentCollector::new(socket);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            OpCode::Close => return Ok(()),
            OpCode::Continuation | OpCode::Ping | OpCode::Pong => {}
        }
    }
}

fn listen(address: IpAddr, port: u16) -> Result<TcpListener, Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((address, port).into())?;
    Ok(socket.listen(BACKLOG)?)
}

fn tls(certificate: &str, key: &str) -> Result<TlsAcceptor, Failure> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    // As all contestants: TLS 1.3, and no tickets; the group is X25519, the client's first.
    let mut config = ServerConfig::builder_with_protocol_versions(&[&TLS13])
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// As the lock has it.
fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let rest = lock
        .split("name = \"fastwebsockets\"\nversion = \"")
        .nth(1);
    rest.and_then(|rest| rest.split('"').next())
        .unwrap_or("of an unknown version")
}

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;
