//! ws:// and wss:// URLs (RFC 6455, section 3).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::error::Error;
use core::fmt;
use core::net::Ipv6Addr;

/// The parts of a URL that a client needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebSocketUrl {
    /// wss.
    is_secure: bool,
    /// Host without brackets.
    host: String,
    port: u16,
    /// Path and query; starts with '/'.
    resource: String,
}

impl WebSocketUrl {
    /// Takes a URL apart.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::NotAUrl)?;
        let is_secure = match scheme {
            scheme if scheme.eq_ignore_ascii_case("ws") => false,
            scheme if scheme.eq_ignore_ascii_case("wss") => true,
            _ => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        if rest.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, resource) = rest.split_at(split);
        if authority.contains('@') {
            return Err(UrlError::UserName);
        }
        let (host, port) = split_authority(authority, is_secure).ok_or(UrlError::Authority)?;
        let resource = if resource.starts_with('/') {
            resource.to_owned()
        } else {
            format!("/{resource}")
        };
        Ok(Self {
            is_secure,
            host: host.to_owned(),
            port,
            resource,
        })
    }

    /// wss.
    pub fn is_secure(&self) -> bool {
        self.is_secure
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
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// What the Host header says: the port only if it is not the scheme's own.
    pub fn host_header(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == default_port(self.is_secure) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }
}

/// Why a URL is none of a WebSocket. Displays as the end of a sentence that begins with the URL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UrlError {
    /// No host, or no port from 1 to 65535.
    Authority,
    /// Something that is not a visible character of ASCII.
    Character,
    /// Fragment identifiers are meaningless here and must not be used.
    Fragment,
    /// Nothing with `://`.
    NotAUrl,
    /// Another scheme.
    Scheme,
    /// User names are not part of these URLs.
    UserName,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authority => "has no valid host and port",
            Self::Character => "holds a character that must be percent-encoded",
            Self::Fragment => "has a fragment, which a WebSocket URL must not have",
            Self::NotAUrl => "is not a URL: it must start with ws:// or wss://",
            Self::Scheme => "does not start with ws:// or wss://",
            Self::UserName => "has a user name, which a WebSocket URL cannot carry",
        })
    }
}

impl Error for UrlError {}

fn default_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

fn split_authority(authority: &str, is_secure: bool) -> Option<(&str, u16)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
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
        None => default_port(is_secure),
    };
    valid.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        for (url, is_secure, host, port, resource, header) in [
            (
                "ws://127.0.0.1:5083/echo?a=b",
                false,
                "127.0.0.1",
                5083,
                "/echo?a=b",
                "127.0.0.1:5083",
            ),
            ("WSS://[::1]", true, "::1", 443, "/", "[::1]"),
            ("ws://[::1]:81/", false, "::1", 81, "/", "[::1]:81"),
            ("ws://h?x", false, "h", 80, "/?x", "h"),
        ] {
            let parts = WebSocketUrl::parse(url).unwrap();
            assert_eq!(parts.is_secure(), is_secure, "{url}");
            assert_eq!((parts.host(), parts.port()), (host, port), "{url}");
            assert_eq!(parts.resource(), resource, "{url}");
            assert_eq!(parts.host_header(), header, "{url}");
        }
    }

    #[test]
    fn what_is_no_websocket_url_is_refused_with_its_reason() {
        for (url, error) in [
            ("127.0.0.1:80", UrlError::NotAUrl),
            ("http://h/", UrlError::Scheme),
            ("ws://", UrlError::Authority),
            ("ws://h:0/", UrlError::Authority),
            ("ws://h:99999", UrlError::Authority),
            ("ws://h:x/", UrlError::Authority),
            ("ws://u@h/", UrlError::UserName),
            ("ws://h/#f", UrlError::Fragment),
            ("ws://h/ x", UrlError::Character),
            ("ws://h/\u{e4}", UrlError::Character),
            ("ws://[::1", UrlError::Authority),
            ("ws://[zz]/", UrlError::Authority),
            ("ws://h:80:90/", UrlError::Authority),
        ] {
            assert_eq!(WebSocketUrl::parse(url), Err(error), "{url}");
        }
    }
}
