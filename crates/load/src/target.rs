//! A ws:// or wss:// URL.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use serde::{Serialize, Serializer};

use crate::scenario::ScenarioError;

/// One server to load, as its URL says it (RFC 6455, section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The URL as given.
    url: String,
    /// wss.
    secure: bool,
    /// Host without brackets.
    host: String,
    port: u16,
    /// Path and query; starts with '/'.
    resource: String,
}

impl Target {
    /// Reads a URL; the error is one sentence.
    pub fn parse(url: &str) -> Result<Self, ScenarioError> {
        let wrong = |why: &str| Err(ScenarioError::new(format!("`{url}` {why}")));
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong("is not a URL: it must start with ws:// or wss://");
        };
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "ws" => false,
            "wss" => true,
            _ => return wrong("does not start with ws:// or wss://"),
        };
        if rest.contains('#') {
            // RFC 6455, section 3: fragment identifiers are meaningless and must not be used.
            return wrong("has a fragment, which a WebSocket URL must not have");
        }
        if rest.bytes().any(|b| b <= b' ' || b >= 0x7f) {
            return wrong("holds a character that must be percent-encoded");
        }
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, resource) = rest.split_at(split);
        if authority.contains('@') {
            return wrong("has a user name, which a WebSocket URL cannot carry");
        }
        let Some((host, port)) = split_authority(authority, secure) else {
            return wrong("has no valid host and port");
        };
        let resource = if resource.starts_with('/') {
            resource.to_owned()
        } else {
            format!("/{resource}")
        };
        Ok(Self {
            url: url.to_owned(),
            secure,
            host: host.to_owned(),
            port,
            resource,
        })
    }

    /// The URL as given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// wss.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, the scheme's own where the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }

    /// What the Host header says.
    pub(crate) fn host_header(&self) -> String {
        let default_port = if self.secure { 443 } else { 80 };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Looks the host up; IPv4 first, as most listeners are there.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, String> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, self.port));
        }
        let found = (self.host.as_str(), self.port)
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

fn split_authority(authority: &str, secure: bool) -> Option<(&str, u16)> {
    let default_port = if secure { 443 } else { 80 };
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (
            host,
            if after.is_empty() {
                None
            } else {
                Some(after.strip_prefix(':')?)
            },
        )
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let valid = !host.is_empty() && host.bytes().all(|b| b != b'[' && b != b']');
    let port = match port {
        Some(port) => port.parse::<u16>().ok().filter(|&port| port != 0)?,
        None => default_port,
    };
    valid.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = Target::parse("ws://127.0.0.1:5083/echo?a=b").unwrap();
        assert_eq!((target.host(), target.port()), ("127.0.0.1", 5083));
        assert_eq!(target.resource(), "/echo?a=b");
        assert_eq!(target.host_header(), "127.0.0.1:5083");
        assert!(!target.is_secure());
        let target = Target::parse("WSS://[::1]").unwrap();
        assert_eq!(
            (target.host(), target.port(), target.resource()),
            ("::1", 443, "/")
        );
        assert_eq!(target.host_header(), "[::1]");
        assert_eq!(Target::parse("ws://h?x").unwrap().resource(), "/?x");
    }

    #[test]
    fn wrong_urls_are_one_sentence() {
        for url in [
            "127.0.0.1:80",
            "http://h/",
            "ws://",
            "ws://h:0/",
            "ws://h:99999",
            "ws://h:x/",
            "ws://u@h/",
            "ws://h/#f",
            "ws://h/ x",
            "ws://[::1",
            "ws://[zz]/",
            "ws://h:80:90/",
        ] {
            let sentence = Target::parse(url).expect_err(url).to_string();
            assert!(sentence.starts_with(&format!("`{url}` ")), "{sentence}");
        }
    }
}
