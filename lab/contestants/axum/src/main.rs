//! An echo, the amplifying JSON service and a broadcast on axum.
//!
//! ADDRESS=IP REPLIES=N axum PORT WORKERS [CERTIFICATE KEY]

mod amplify;
mod broadcast;

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
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
            println!("axum {}", version());
            return Ok(());
        }
        [port, workers] => (port, workers, None),
        [port, workers, certificate, key] => (port, workers, Some(tls(certificate, key)?)),
        _ => return Err("usage: axum PORT WORKERS [CERTIFICATE KEY]".into()),
    };
    let replies = std::env::var("REPLIES")?.parse()?;
    let address: IpAddr = std::env::var("ADDRESS")?.parse()?;
    let amplified = async move |upgrade| accept(upgrade, Some(replies));
    let room = broadcast::Room::new();
    let router = Router::new()
        .route("/echo", any(async |upgrade| accept(upgrade, None)))
        .route("/amplify", any(amplified))
        .route("/broadcast", any(async move |upgrade| room.accept(upgrade)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.parse()?)
        .enable_all()
        .build()?;
    let port = port.parse()?;
    runtime.block_on(async move {
        let listener = listen(address, port)?;
        println!("listening on port {port}, {workers} workers");
        // Accepted by a worker: the thread that waits here is none of them.
        tokio::spawn(accept_all(listener, acceptor, router)).await??;
        Ok(())
    })
}

/// axum's own `serve` has no TLS, so both go the way that its examples have for that.
async fn accept_all(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    router: Router,
) -> Result<(), Failure> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            // What one connection ends with is no matter of the others.
            let _ = serve(stream, acceptor, router).await;
        });
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: Router,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    match acceptor {
        Some(acceptor) => serve_http(acceptor.accept(stream).await?, router).await,
        None => serve_http(stream, router).await,
    }
}

async fn serve_http<S>(stream: S, router: Router) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades()
        .await?;
    Ok(())
}

fn accept(upgrade: WebSocketUpgrade, replies: Option<usize>) -> Response {
    // As moonwire by default: 16 MiB for a message.
    upgrade
        .max_message_size(16 << 20)
        .on_upgrade(async move |socket| {
            // What one connection ends with is no matter of the others.
            let _ = answer(socket, replies).await;
        })
}

/// Echoes, or answers each message several times.
async fn answer(mut socket: WebSocket, replies: Option<usize>) -> Result<(), Failure> {
    while let Some(message) = socket.next().await {
        let message = message?;
        if !matches!(message, Message::Text(_) | Message::Binary(_)) {
            continue;
        }
        let Some(replies) = replies else {
            socket.send(message).await?;
            continue;
        };
        let reply = amplify::reply(&message)?;
        for _ in 0..replies {
            socket.feed(reply.clone()).await?;
        }
        socket.flush().await?;
    }
    Ok(())
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
    let rest = lock.split("name = \"axum\"\nversion = \"").nth(1);
    rest.and_then(|rest| rest.split('"').next())
        .unwrap_or("of an unknown version")
}

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;
