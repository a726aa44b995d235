//! A ws:// or wss:// URL.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use moonwire_proto::WebSocketUrl;
use serde::{Serialize, Serializer};

use crate::scenario::ScenarioError;

/// One server to load, as its URL says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL as given.
    url: String,
    parts: WebSocketUrl,
}

impl Target {
    /// Reads a URL; the error is one sentence.
    pub fn parse(url: &str) -> Result<Self, ScenarioError> {
        let parts = WebSocketUrl::parse(url)
            .map_err(|error| ScenarioError::new(format!("`{url}` {error}")))?;
        Ok(Self {
            url: url.to_owned(),
            parts,
        })
    }

    /// The URL as given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// wss.
    pub fn is_secure(&self) -> bool {
        self.parts.is_secure()
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        self.parts.host()
    }

    /// Port, the scheme's own where the URL has none.
    pub fn port(&self) -> u16 {
        self.parts.port()
    }

    /// Path and query.
    pub(crate) fn resource(&self) -> &str {
        self.parts.resource()
    }

    /// What the Host header says.
    pub(crate) fn host_header(&self) -> String {
        self.parts.host_header()
    }

    /// Looks the host up; IPv4 first, as most listeners are there.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, String> {
        if let Ok(address) = self.host().parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, self.port()));
        }
        let found = (self.host(), self.port())
            .to_socket_addrs()
            .map_err(|error| format!("the host of {} cannot be found: {error}", self.url))?;
        let mut addresses: Vec<SocketAddr> = found.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        addresses
            .first()
            .copied()
            .ok_or_else(|| format!("the host of {} has no address", self.url))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_urls_are_one_sentence() {
        for url in ["127.0.0.1:80", "http://h/", "ws://h:0/", "ws://h/#f"] {
            let sentence = Target::parse(url).expect_err(url).to_string();
            assert!(sentence.starts_with(&format!("`{url}` ")), "{sentence}");
        }
    }
}
