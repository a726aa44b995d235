//! From a URL to a connection of TCP.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use moonwire_net::Time;
use moonwire_proto::WebSocketUrl;

use super::CONNECT_TIMEOUT;

/// Connects to the host of the URL, by the first of its addresses that answers; or says why none
/// does.
pub(super) fn dial(url: &WebSocketUrl) -> Result<(TcpStream, SocketAddr), String> {
    let deadline = Time::monotonic() + CONNECT_TIMEOUT;
    let mut refusal = format!("the host {} has no address", url.host());
    for address in addresses(url)? {
        let left = deadline - Time::monotonic();
        if left < ATTEMPT_MIN {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                let nodelay = stream.set_nodelay(true);
                nodelay.map_err(|error| format!("cannot connect to {address}: {error}"))?;
                return Ok((stream, address));
            }
            Err(error) => refusal = format!("cannot connect to {address}: {error}"),
        }
    }
    Err(refusal)
}

fn addresses(url: &WebSocketUrl) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = (url.host(), url.port());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("the host {host} cannot be found: {error}"))?;
    Ok(found.take(ADDRESSES_MAX).collect())
}

/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;

/// With less than this left there is no use in another attempt.
const ATTEMPT_MIN: Duration = Duration::from_millis(1);
