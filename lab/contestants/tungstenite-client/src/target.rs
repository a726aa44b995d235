//! Where the connections go.

use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::Failure;

/// A URL, and what is trusted if it is of TLS.
pub struct Target {
    url: String,
    /// Host and port.
    place: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// TCP or TLS.
pub trait Stream: AsyncRead + AsyncWrite {}
impl<S: AsyncRead + AsyncWrite> Stream for S {}

impl Target {
    /// `authority` is a file in PEM.
    pub fn new(url: &str, authority: Option<&str>) -> Result<Self, Failure> {
        let place = url
            .split('/')
            .nth(2)
            .ok_or("the URL has no host")?
            .to_owned();
        let host = place
            .rsplit_once(':')
            .ok_or("the URL has no port")?
            .0
            .to_owned();
        let tls = authority.map(|file| -> Result<_, Failure> {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(file)? {
                roots.add(certificate?)?;
            }
            let config = ClientConfig::builder()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(host)?;
            Ok((TlsConnector::from(Arc::new(config)), name))
        });
        Ok(Self {
            url: url.to_owned(),
            place,
            tls: tls.transpose()?,
        })
    }

    pub async fn connect(&self) -> Result<WebSocketStream<Pin<Box<dyn Stream>>>, Failure> {
        let stream = TcpStream::connect(&self.place).await?;
        stream.set_nodelay(true)?;
        let stream: Pin<Box<dyn Stream>> = match &self.tls {
            Some((tls, name)) => Box::pin(tls.connect(name.clone(), stream).await?),
            None => Box::pin(stream),
        };
        let (socket, _) = client_async(&self.url, stream).await?;
        Ok(socket)
    }
}
