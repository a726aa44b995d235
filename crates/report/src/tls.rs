//! What connections over TLS agreed on.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format;

/// One set of terms, and how many connections came up on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tls {
    /// `1.2` or `1.3`.
    pub version: String,
    /// The cipher suite, as `TLS13_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// The group of the key exchange, as `X25519`; empty where keys were not exchanged.
    pub group: String,
    /// The key of the server's certificate: `ECDSA`, `RSA`, `Ed25519`; empty where it is of another
    /// kind.
    pub key: String,
    /// Its size.
    pub key_bits: u32,
    /// What ALPN said is spoken inside; empty where nothing was agreed on.
    pub alpn: String,
    /// Connections with a full handshake.
    pub full: u64,
    /// Connections that resumed an earlier session.
    pub resumed: u64,
}

impl Tls {
    /// Adds connections to those of the same terms in `all`.
    pub fn add_to(&self, all: &mut Vec<Self>) {
        if let Some(known) = all.iter_mut().find(|it| it.is_like(self)) {
            known.full += self.full;
            known.resumed += self.resumed;
        } else if all.len() < KINDS_MAX {
            all.push(self.clone());
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let counts = (self.full, self.resumed);
        let other = Self {
            full: counts.0,
            resumed: counts.1,
            ..other.clone()
        };
        *self == other
    }

    /// Connections in all.
    pub fn connections(&self) -> u64 {
        self.full + self.resumed
    }

    /// What decides how much work a handshake and a record are. What is spoken inside is not part
    /// of it, nor how many of the connections there were.
    pub(crate) fn terms(&self) -> Terms {
        let key = match self.key.as_str() {
            "" => "a key of another kind".to_owned(),
            key => format!("{key} {}", self.key_bits),
        };
        let exchange = match self.group.as_str() {
            "" => "no key exchange".to_owned(),
            group => group.to_owned(),
        };
        let handshake = match (self.full, self.resumed) {
            (_, 0) => "full handshakes",
            (0, _) => "resumed sessions",
            (_, _) => "full handshakes and resumed sessions",
        };
        // Names of TLS 1.3 have its version in front (IANA has it without).
        let cipher = self.cipher.split_once('_');
        let cipher = cipher.map_or(self.cipher.as_str(), |(_, cipher)| cipher);
        Terms([
            format!("TLS {}", self.version),
            cipher.to_owned(),
            exchange,
            key,
            handshake.to_owned(),
        ])
    }
}

/// Bound of the sets that are told apart: a peer cannot make a result grow.
const KINDS_MAX: usize = 32;

/// The terms of some connections, for a reader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Terms([String; TERMS]);

impl Terms {
    /// All of them.
    pub(crate) fn text(&self) -> String {
        self.0.join(", ")
    }

    /// Those that are others than in `other`.
    fn beyond(&self, other: &Self) -> String {
        let own = self.0.iter().zip(&other.0);
        let own = own.filter(|(one, other)| one != other);
        let own: Vec<&str> = own.map(|(one, _)| one.as_str()).collect();
        own.join(", ")
    }
}

/// All terms of some connections; empty without TLS.
pub(crate) type TermsOf = BTreeSet<Terms>;

/// For a reader, as in `TLS 1.3, ..., or TLS 1.2, ...`.
pub(crate) fn all_terms(terms: &TermsOf) -> String {
    let all: Vec<String> = terms.iter().map(Terms::text).collect();
    all.join("; or ")
}

/// How the terms of the one differ from those of the other: what each has.
pub(crate) fn difference(one: &TermsOf, other: &TermsOf) -> (String, String) {
    match (one.first(), other.first()) {
        (Some(first), Some(second)) if one.len() == 1 && other.len() == 1 => {
            (first.beyond(second), second.beyond(first))
        }
        _ => (all_terms(one), all_terms(other)),
    }
}

/// Every set with its counts, in one line.
pub(crate) fn sentence(all: &[Tls]) -> String {
    let mut all: Vec<&Tls> = all.iter().collect();
    all.sort_by_key(|tls| std::cmp::Reverse(tls.connections()));
    let told = |tls: &&Tls| {
        let mut parts = vec![tls.terms().0[..TERMS - 1].join(", ")];
        if !tls.alpn.is_empty() {
            parts.push(format!("ALPN {}", tls.alpn));
        }
        // The last term is how handshakes were, which counts tell better.
        let counts = [(tls.full, "full handshakes"), (tls.resumed, "resumed")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        parts.extend(counts.map(|(count, what)| format!("{} {what}", format::count(*count))));
        parts.join(", ")
    };
    all.iter().map(told).collect::<Vec<_>>().join("; ")
}

/// Version, cipher suite, group, key, and how handshakes were.
const TERMS: usize = 5;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tls(version: &str, full: u64, resumed: u64) -> Tls {
        Tls {
            version: version.to_owned(),
            cipher: "TLS13_AES_128_GCM_SHA256".to_owned(),
            group: "X25519".to_owned(),
            key: "ECDSA".to_owned(),
            key_bits: 256,
            alpn: "http/1.1".to_owned(),
            full,
            resumed,
        }
    }

    #[test]
    fn connections_of_the_same_terms_are_counted_together() {
        let mut all = Vec::new();
        for one in [tls("1.3", 1, 0), tls("1.2", 1, 0), tls("1.3", 0, 4)] {
            one.add_to(&mut all);
        }
        assert_eq!(all, [tls("1.3", 1, 4), tls("1.2", 1, 0)]);
        assert_eq!(
            sentence(&all),
            "TLS 1.3, AES_128_GCM_SHA256, X25519, ECDSA 256, ALPN http/1.1, 1 full handshakes, 4 \
             resumed; TLS 1.2, AES_128_GCM_SHA256, X25519, ECDSA 256, ALPN http/1.1, 1 full \
             handshakes"
        );
        for bits in 0..100 {
            let other = Tls {
                key_bits: bits,
                ..tls("1.3", 1, 0)
            };
            other.add_to(&mut all);
        }
        assert_eq!(all.len(), KINDS_MAX);
    }

    #[test]
    fn a_difference_names_what_differs() {
        let of = |all: &[Tls]| -> TermsOf { all.iter().map(Tls::terms).collect() };
        let (new, old) = (of(&[tls("1.3", 9, 0)]), of(&[tls("1.2", 3, 0)]));
        let told = ("TLS 1.3".to_owned(), "TLS 1.2".to_owned());
        assert_eq!(difference(&new, &old), told);
        let resumed = of(&[tls("1.3", 1, 8)]);
        assert_eq!(difference(&new, &resumed).0, "full handshakes");
        let mixed = of(&[tls("1.3", 1, 0), tls("1.2", 1, 0)]);
        assert!(difference(&new, &mixed).1.contains("; or TLS 1.3"));
        let other_inside = Tls {
            alpn: String::new(),
            ..tls("1.3", 5, 0)
        };
        assert_eq!(of(&[other_inside]), new);
    }
}
