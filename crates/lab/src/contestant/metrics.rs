//! What a server tells of itself while it runs, on a page in the text format of Prometheus.

mod page;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Deserialize;

/// Where the page is, and what its series are called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    /// The path on the port and over the TLS that messages have.
    pub(super) path: String,
    /// Messages received.
    received: String,
    /// Messages sent.
    sent: String,
    /// Connections up.
    connected: String,
}

/// What a server, or several together, say at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) connected: u64,
}

/// A page that can be asked for.
#[derive(Debug, Clone)]
pub(crate) struct MetricsPage {
    metrics: Metrics,
    address: SocketAddr,
    /// Whom to trust, where it is asked for over TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl MetricsPage {
    /// The page of a server at `address`; `None` where the certificate cannot be used, which the
    /// load finds out and tells.
    pub(super) fn new(
        metrics: &Metrics,
        address: SocketAddr,
        certificate: Option<&Path>,
    ) -> Option<Self> {
        let tls = certificate.map(trust).transpose().ok()?;
        Some(Self {
            metrics: metrics.clone(),
            address,
            tls,
        })
    }

    /// Asks for it; the whole answer takes [`ANSWER_TIMEOUT`] at most.
    pub(crate) fn ask(&self) -> io::Result<Told> {
        let stream = TimedStream::connect(self.address, Instant::now() + ANSWER_TIMEOUT)?;
        let answer = match &self.tls {
            None => self.exchange(stream)?,
            Some(config) => {
                let name = ServerName::from(self.address.ip());
                let client = ClientConnection::new(Arc::clone(config), name);
                self.exchange(StreamOwned::new(client.map_err(io::Error::other)?, stream))?
            }
        };
        let page = page::body(&answer).map_err(io::Error::other)?;
        let told = self.metrics.read(&page);
        told.ok_or_else(|| io::Error::other("the page does not have the series"))
    }

    fn exchange(&self, mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
        let (path, host) = (&self.metrics.path, self.address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        let mut answer = Vec::new();
        let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        match read {
            // What an end of TLS that was not announced has cut off is found out by the length.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            Ok(_) | Err(_) => Ok(answer),
        }
    }
}

impl Metrics {
    /// The sums over all labels; `None` where a series is not there.
    fn read(&self, page: &str) -> Option<Told> {
        let sum = |name: &str| {
            let values = page.lines().filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let value = match rest.strip_prefix('{') {
                    Some(labels) => labels.rsplit_once('}')?.1,
                    None => rest.strip_prefix(' ')?,
                };
                // A time may follow.
                value.split_whitespace().next()?.parse::<f64>().ok()
            });
            let sum = values.fold(None, |sum: Option<f64>, value| {
                Some(sum.unwrap_or(0.0) + value)
            });
            sum.map(|sum| sum as u64)
        };
        Some(Told {
            received: sum(&self.received)?,
            sent: sum(&self.sent)?,
            connected: sum(&self.connected)?,
        })
    }
}

/// Trust in one self-signed certificate.
fn trust(certificate: &Path) -> Result<Arc<ClientConfig>, String> {
    let file = File::open(certificate).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for found in rustls::pki_types::CertificateDer::pem_reader_iter(BufReader::new(file)) {
        let found = found.map_err(|error| error.to_string())?;
        roots.add(found).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots);
    Ok(Arc::new(config.with_no_client_auth()))
}

/// A connection that is over at a moment, whatever comes.
#[derive(Debug)]
struct TimedStream {
    stream: TcpStream,
    deadline: Instant,
}

impl TimedStream {
    fn connect(address: SocketAddr, deadline: Instant) -> io::Result<Self> {
        let left = deadline.saturating_duration_since(Instant::now());
        let stream = TcpStream::connect_timeout(&address, left)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { stream, deadline })
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

impl Write for TimedStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A page that takes longer is asked for again a second later.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Those of servers with hundreds of series have some 100 KiB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PAGE: &str = "HTTP/1.1 200 OK\r\n\r\n# TYPE in_total counter\nin_total{worker=\"0\"} 40\n\
                        in_total{worker=\"1\",name=\"a } b\"} 2 1700000000\nin_total_of_others 7\n\
                        out_total 4.1e1\nup 3\n";

    fn metrics() -> Metrics {
        Metrics {
            path: "/metrics".to_owned(),
            received: "in_total".to_owned(),
            sent: "out_total".to_owned(),
            connected: "up".to_owned(),
        }
    }

    const TOLD: Told = Told {
        received: 42,
        sent: 41,
        connected: 3,
    };

    #[test]
    fn series_are_summed_over_their_labels_and_none_may_be_missing() {
        assert_eq!(metrics().read(PAGE), Some(TOLD));
        assert_eq!(metrics().read("in_total 1\nup 1\n"), None);
    }

    #[test]
    fn a_page_is_asked_for_at_its_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(PAGE.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let page = MetricsPage::new(&metrics(), address, None).unwrap();
        assert_eq!(page.ask().unwrap(), TOLD);
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /metrics HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(page.ask().is_err(), "nobody listens");
    }

    #[test]
    fn a_page_that_comes_drop_by_drop_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Each byte comes long before the next read gives up.
            while stream.write_all(b"#").is_ok() {
                std::thread::sleep(ANSWER_TIMEOUT / 20);
            }
        });
        let page = MetricsPage::new(&metrics(), address, None).unwrap();
        let begun = Instant::now();
        assert!(page.ask().is_err());
        assert!(
            begun.elapsed() < ANSWER_TIMEOUT * 10,
            "{:?}",
            begun.elapsed()
        );
        server.join().unwrap();
    }
}
