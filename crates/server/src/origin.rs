//! Which pages of other sites may connect with a user's cookies.
//!
//! A browser lets any page open a WebSocket to any server and sends the cookies of that server
//! along, as the same-origin policy does not cover the handshake (RFC 6455, 10.2). A server that
//! knows its users by a cookie would act for the page of a stranger: cross-site WebSocket
//! hijacking. What a page cannot forge is `Origin`, which tells where it came from.

use std::net::Ipv6Addr;

use moonwire_proto::Request;

/// The origins whose pages may connect with cookies, besides that of the server itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedOrigins {
    /// Whether every origin may, `null` included.
    is_any: bool,
    listed: Vec<Origin>,
}

impl AllowedOrigins {
    /// Adds what is written: an origin such as `https://app.example.com`, or `*` for every one.
    pub(crate) fn allow(&mut self, text: &str) -> Result<(), String> {
        if text == "*" {
            self.is_any = true;
            return Ok(());
        }
        let origin = Origin::parse(text).ok_or_else(|| {
            format!(
                "`{text}` is not an origin; write scheme and host such as https://app.example.com, \
                 or \"*\" for all"
            )
        })?;
        self.listed.push(origin);
        Ok(())
    }

    /// Whether the request comes with cookies from the page of a site that is not allowed. Without
    /// cookies a page can do no more than its own server can, and without an `Origin` it is no
    /// page. `null`, the origin of sandboxed frames and files, can be anybody's.
    pub(crate) fn refuses(&self, request: &Request, is_tls: bool) -> bool {
        if self.is_any || request.header("cookie").is_none() {
            return false;
        }
        let mut origins = request.headers().all("origin");
        origins.any(|origin| match Origin::parse(origin) {
            Some(origin) => !origin.is_of(request.host(), is_tls) && !self.listed.contains(&origin),
            None => true,
        })
    }
}

/// Where a page came from (RFC 6454, 4).
#[derive(Clone, Debug, Eq, PartialEq)]
struct Origin {
    /// In lower case.
    scheme: String,
    /// In lower case; of IPv6 with its brackets.
    host: String,
    /// None of schemes without ports, such as `chrome-extension`.
    port: Option<u16>,
}

impl Origin {
    /// `scheme://host` or `scheme://host:port`, and nothing else.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if scheme.is_empty() || !scheme.bytes().all(is_scheme) {
            return None;
        }
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = host_and_port(rest)?;
        let port = port.or_else(|| default_port(&scheme));
        Some(Self { scheme, host, port })
    }

    /// Whether it is the server that `Host` names. A `Host` without a port means that of the
    /// scheme: with TLS of ours https, otherwise what the page was loaded by, because something in
    /// front of the server may have spoken TLS.
    fn is_of(&self, host: &str, is_tls: bool) -> bool {
        let scheme = if is_tls { "https" } else { &self.scheme };
        if self.scheme != scheme {
            return false;
        }
        let Some((name, port)) = host_and_port(host) else {
            return false;
        };
        let port = port.or_else(|| default_port(scheme));
        name == self.host && port.is_some() && port == self.port
    }
}

/// The host in lower case, and the port if there is one.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, _) = rest.split_once(']')?;
            let _: Ipv6Addr = address.parse().ok()?;
            text.split_at_checked(address.len() + 2)?
        }
        None => {
            let (host, port) = text.split_at_checked(text.find(':').unwrap_or(text.len()))?;
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_host) {
                return None;
            }
            (host, port)
        }
    };
    let port = match port.strip_prefix(':') {
        // RFC 3986, 3.2.3: an empty port is the default one.
        Some("") => None,
        None if port.is_empty() => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok()?)
        }
        None | Some(_) => return None,
    };
    Some((host.to_ascii_lowercase(), port))
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use moonwire_proto::{Limits, RequestReader};

    use super::*;

    fn request(fields: &str) -> Request {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let mut reader = RequestReader::new(&Limits::default());
        reader.receive(text.as_bytes()).unwrap().unwrap().0
    }

    fn allowing(origins: &[&str]) -> AllowedOrigins {
        let mut allowed = AllowedOrigins::default();
        for origin in origins {
            allowed.allow(origin).unwrap();
        }
        allowed
    }

    /// Refused with cookies from `origin`, by a server that is `host` for the client.
    fn is_refused(allowed: &AllowedOrigins, host: &str, origin: &str, is_tls: bool) -> bool {
        let fields = format!("Host: {host}\r\nOrigin: {origin}\r\nCookie: session=1\r\n");
        allowed.refuses(&request(&fields), is_tls)
    }

    #[test]
    fn the_servers_own_pages_may_connect() {
        let none = AllowedOrigins::default();
        for (host, origin, is_tls) in [
            ("example.com", "https://example.com", true),
            ("example.com", "https://example.com", false),
            ("example.com", "http://example.com", false),
            ("Example.com:443", "https://eXample.com", true),
            ("example.com", "http://example.com:80", false),
            ("example.com:8080", "http://example.com:8080", false),
            ("[::1]:5083", "http://[::1]:5083", false),
            ("[::1]", "https://[::1]", true),
        ] {
            assert!(!is_refused(&none, host, origin, is_tls), "{host} {origin}");
        }
    }

    #[test]
    fn pages_of_others_may_not() {
        let none = AllowedOrigins::default();
        for (host, origin, is_tls) in [
            ("example.com", "https://evil.example", true),
            ("example.com", "https://example.com.evil.example", true),
            ("example.com", "https://sub.example.com", true),
            ("example.com", "https://example.com:8443", true),
            // An unencrypted page is anybody's on the way.
            ("example.com", "http://example.com", true),
            ("example.com", "http://example.com:443", true),
            ("example.com:8443", "http://example.com:8443", true),
            ("example.com:8080", "http://example.com", false),
            ("example.com", "null", false),
            ("example.com", "", false),
            ("example.com", "https://example.com/", true),
            ("example.com", "https://user@example.com", true),
            ("example.com", "file://", false),
            ("example.com", "chrome-extension://example.com", false),
            ("[::1]", "https://[::1]x", true),
            (
                "example.com",
                "https://example.com https://evil.example",
                true,
            ),
        ] {
            assert!(is_refused(&none, host, origin, is_tls), "{host} {origin}");
        }
        let two = "Host: a\r\nOrigin: http://a\r\nOrigin: http://b\r\nCookie: c=1\r\n";
        assert!(none.refuses(&request(two), false));
    }

    #[test]
    fn without_cookies_or_without_an_origin_there_is_nothing_to_hijack() {
        let none = AllowedOrigins::default();
        for fields in [
            "Host: example.com\r\nOrigin: https://evil.example\r\n",
            "Host: example.com\r\nCookie: session=1\r\n",
        ] {
            assert!(!none.refuses(&request(fields), true), "{fields}");
        }
    }

    #[test]
    fn listed_pages_may_connect_and_no_others() {
        let some = allowing(&["https://app.example.com", "HTTP://localhost:3000"]);
        for origin in ["https://app.example.com", "https://APP.example.com:443"] {
            assert!(
                !is_refused(&some, "api.example.com", origin, true),
                "{origin}"
            );
        }
        assert!(!is_refused(
            &some,
            "localhost:5083",
            "http://localhost:3000",
            false
        ));
        for origin in [
            "http://app.example.com",
            "https://app.example.com:444",
            "null",
        ] {
            assert!(
                is_refused(&some, "api.example.com", origin, true),
                "{origin}"
            );
        }
        let extension = allowing(&["chrome-extension://abcdefgh"]);
        for (origin, is_listed) in [
            ("chrome-extension://abcdefgh", true),
            ("chrome-extension://hgfedcba", false),
            ("https://abcdefgh", false),
        ] {
            let refused = is_refused(&extension, "example.com", origin, true);
            assert_eq!(refused, !is_listed, "{origin}");
        }
        let any = allowing(&["*"]);
        for origin in ["https://evil.example", "null", "nonsense"] {
            assert!(
                !is_refused(&any, "api.example.com", origin, true),
                "{origin}"
            );
        }
    }

    #[test]
    fn what_is_no_origin_cannot_be_listed() {
        for text in [
            "null",
            "example.com",
            "https://",
            "https://a/b",
            "https://a]b:99]",
            "https://[::1]a:99",
            "https://[a]",
            "a b://c",
            "https://*.a.b",
        ] {
            let error = AllowedOrigins::default().allow(text).unwrap_err();
            assert!(error.contains("is not an origin"), "{error}");
        }
    }
}
