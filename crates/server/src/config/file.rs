//! `moonwire.toml` as it is written: the shape only, every key optional. What it means is decided
//! in [`super::Config`]. Keys whose value can be wrong in a way that only shows later carry their
//! place in the file.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer};
use toml::Spanned;

/// A whole number as TOML has them; what it may be is decided with its key.
pub(super) type Number = Spanned<i64>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct File {
    #[serde(default)]
    pub(super) server: ServerTable,
    pub(super) tls: Option<Spanned<TlsTable>>,
    #[serde(default)]
    pub(super) client_tls: ClientTlsTable,
    #[serde(default)]
    pub(super) limits: LimitsTable,
    #[serde(default)]
    pub(super) services: BTreeMap<String, Spanned<ServiceTable>>,
}

/// `[server]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ServerTable {
    pub(super) listen: Option<Spanned<OneOrMany>>,
    pub(super) workers: Option<Number>,
    pub(super) connections: Option<Number>,
    pub(super) driver: Option<Spanned<String>>,
    pub(super) tls_records: Option<Spanned<String>>,
    pub(super) on_broken_service: Option<Spanned<String>>,
    pub(super) connection_weight: Option<Spanned<f64>>,
    pub(super) log: Option<Spanned<String>>,
    pub(super) log_format: Option<Spanned<String>>,
    pub(super) allowed_origins: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) acl: AclTable,
}

/// `[server.acl]` and `[services.NAME.acl]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct AclTable {
    pub(super) policy: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) exclude: Vec<Spanned<String>>,
}

/// `[tls]`: either both files or `dev = true`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct TlsTable {
    pub(super) versions: Option<Spanned<Vec<String>>>,
    pub(super) cert: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) dev: bool,
    #[serde(default)]
    pub(super) more: Vec<CertificateTable>,
    pub(super) client_ca: Option<Spanned<String>>,
    pub(super) client_auth: Option<Spanned<String>>,
}

/// `[[tls.more]]`: a certificate for other names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct CertificateTable {
    pub(super) cert: Spanned<String>,
    pub(super) key: Spanned<String>,
}

/// `[client_tls]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ClientTlsTable {
    pub(super) ca: Option<Spanned<String>>,
    pub(super) versions: Option<Spanned<Vec<String>>>,
    pub(super) verify_loopback_name: Option<bool>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitsTable {
    pub(super) message_bytes_max: Option<Number>,
    pub(super) frames_per_message_max: Option<Number>,
    pub(super) header_bytes_max: Option<Number>,
    pub(super) headers_max: Option<Number>,
    pub(super) handshake_timeout_ms: Option<Number>,
    pub(super) idle_timeout_ms: Option<Number>,
    pub(super) pong_timeout_ms: Option<Number>,
    pub(super) ping_interval_ms: Option<Number>,
    pub(super) close_timeout_ms: Option<Number>,
    pub(super) drain_timeout_ms: Option<Number>,
    pub(super) message_timeout_ms: Option<Number>,
    pub(super) write_timeout_ms: Option<Number>,
    pub(super) write_queue_bytes_max: Option<Number>,
    pub(super) write_queue_policy: Option<Spanned<String>>,
    pub(super) connection_memory_bytes_max: Option<Number>,
    pub(super) memory_bytes_per_worker_max: Option<Number>,
    pub(super) fragment_bytes: Option<Number>,
    pub(super) connections_per_worker_max: Option<Number>,
    pub(super) busy_status: Option<Number>,
    pub(super) connections_per_source_max: Option<Number>,
    pub(super) handshakes_per_source_per_s_max: Option<Number>,
    pub(super) source_limits_exempt: Option<Vec<Spanned<String>>>,
    pub(super) handshakes_per_worker_max: Option<Number>,
    pub(super) handovers_per_worker_max: Option<Number>,
    pub(super) backlog: Option<Number>,
    pub(super) spare_buffers_per_worker_max: Option<Number>,
    pub(super) spare_buffer_bytes_max: Option<Number>,
    pub(super) receive_buffer_bytes: Option<Number>,
    pub(super) send_buffer_bytes: Option<Number>,
    pub(super) nodelay: Option<bool>,
}

/// `[services.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ServiceTable {
    #[serde(default)]
    pub(super) standalone: bool,
    #[serde(default = "yes")]
    pub(super) auto_start: bool,
    #[serde(default)]
    pub(super) depends: Vec<Spanned<String>>,
    pub(super) target: Option<Spanned<String>>,
    pub(super) builtin: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    pub(super) instances: Option<Number>,
    pub(super) message_bytes_max: Option<Number>,
    pub(super) memory_bytes_max: Option<Number>,
    pub(super) callback_timeout_ms: Option<Number>,
    pub(super) execution: Option<Spanned<String>>,
    pub(super) protocol: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) preload: Vec<Spanned<String>>,
    pub(super) sandbox: Option<Spanned<String>>,
    pub(super) handshake_hook: Option<bool>,
    pub(super) subprotocol: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) subprotocol_forced: bool,
    pub(super) deflate: Option<DeflateTable>,
    pub(super) allowed_origins: Option<Vec<Spanned<String>>>,
    pub(super) acl: Option<AclTable>,
    #[serde(default)]
    pub(super) extra_headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) config: toml::Table,
}

fn yes() -> bool {
    true
}

/// `[services.NAME.deflate]`, which alone turns compression on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DeflateTable {
    pub(super) level: Option<Number>,
    pub(super) threshold_bytes: Option<Number>,
    pub(super) compress_bytes_max: Option<Number>,
    #[serde(default)]
    pub(super) server_context_takeover: bool,
    #[serde(default)]
    pub(super) client_context_takeover: bool,
    pub(super) server_window_bits_max: Option<Number>,
    pub(super) client_window_bits_max: Option<Number>,
}

/// `listen = "ADDR" or `listen = ["ADDR", "ADDR"]`.
#[derive(Debug)]
pub(super) struct OneOrMany(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address in quotes, or a list of them")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOrMany, A::Error> {
        Vec::<String>::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMany)
    }
}
