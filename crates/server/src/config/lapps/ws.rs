//! `ws.json`: listeners, workers, TLS, access.

use std::net::{IpAddr, SocketAddr};

use toml::{Table, Value};

use super::super::ConfigError;
use super::Certificate;
use super::reader::Reader;
use crate::cidr::Cidr;
use crate::handler;

/// Whether anybody can connect.
pub(super) type Serves = bool;

/// Writes `[server]`, `[tls]` and `[limits]`, and `[client_tls]` if a service connects to others;
/// adds the files that these need.
pub(super) fn convert(
    ws: &mut Reader<'_>,
    root: &mut Table,
    connects: bool,
    needed: &mut Vec<Certificate>,
) -> Result<Serves, ConfigError> {
    let mut server = Table::new();
    let listeners = ws.integer("listeners", 0..=COUNT_MAX)?.unwrap_or(2);
    let mut limits = Table::new();
    let workers = workers(ws, &mut limits)?;
    let serves = listeners > 0 && workers > 0;
    server.insert("workers".into(), if serves { workers } else { 0 }.into());
    let address = address(ws)?;
    if serves {
        server.insert("listen".into(), address.to_string().into());
    } else {
        ws.remark(
            "without listeners or workers nobody can connect: only standalone services start",
        );
    }
    if listeners > 0 && listeners != workers {
        ws.remark("each worker has a listener of its own, whatever `listeners` says");
    }
    server.insert("on_broken_service".into(), "skip".into());
    if let Some(weight) = ws.number("connection_weight", 0.0..=1000.0)? {
        server.insert("connection_weight".into(), weight.into());
    }
    server.insert("acl".into(), acl(&mut ws.object("acl")?)?.into());
    root.insert("server".into(), server.into());
    root.insert("limits".into(), limits.into());
    let (tls, client_tls) = tls(ws, connects, needed)?;
    if let Some(tls) = tls {
        root.insert("tls".into(), tls.into());
    }
    if let Some(client_tls) = client_tls {
        root.insert("client_tls".into(), client_tls.into());
    }
    ws.ignore(
        "lapps_config_auto_save",
        "the configuration is never written",
    );
    for key in HISTORICAL {
        ws.ignore(key, "LAppS has given it up, too");
    }
    Ok(serves)
}

/// The number of workers; their keys become limits.
fn workers(ws: &mut Reader<'_>, limits: &mut Table) -> Result<i64, ConfigError> {
    let mut table = ws.object("workers")?;
    let workers = table.integer("workers", 0..=COUNT_MAX)?.unwrap_or(4);
    let max = handler::SLOTS_MAX as i64;
    let connections = table.integer("max_connections", 1..=i64::MAX)?;
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT).min(max);
    limits.insert("connections_per_worker_max".into(), connections.into());
    limits.insert("busy_status".into(), 403.into());
    if table.boolean("auto_fragment")?.unwrap_or(false) {
        limits.insert("fragment_bytes".into(), FRAGMENT_BYTES.into());
    }
    for key in [
        "max_poll_events",
        "max_poll_wait_ms",
        "max_inbounds_skip",
        "input_buffer_size",
    ] {
        table.ignore(key, "workers wait and read in their own way");
    }
    for key in ["preads", "cinq_depth"] {
        table.ignore(key, "LAppS has given it up, too");
    }
    table.finish();
    Ok(workers)
}

fn address(ws: &mut Reader<'_>) -> Result<SocketAddr, ConfigError> {
    let port = ws.integer("port", 0..=65_535)?.unwrap_or(PORT);
    let port = u16::try_from(port).unwrap_or_default();
    let Some(ip) = ws.text("ip")? else {
        return Ok(SocketAddr::from(([0, 0, 0, 0], port)));
    };
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| ws.error("ip", &format!("is `{ip}` and must be an address")))?;
    Ok(SocketAddr::new(ip, port))
}

/// `[tls]` and `[client_tls]`.
fn tls(
    ws: &mut Reader<'_>,
    connects: bool,
    needed: &mut Vec<Certificate>,
) -> Result<(Option<Table>, Option<Table>), ConfigError> {
    let is_on = ws.boolean("tls")?;
    if is_on.is_none() {
        ws.remark("there is no `tls`, so connections are not encrypted");
    }
    let version = ws.integer("tls_server_version", i64::MIN..=i64::MAX)?;
    let client_version = match connects {
        true => ws.integer("tls_client_version", i64::MIN..=i64::MAX)?,
        false => {
            ws.ignore("tls_client_version", NO_CLIENT);
            None
        }
    };
    let mut files = ws.object("tls_certificates")?;
    let cert = certificate(&mut files, "cert", "localhost.crt")?;
    let key = certificate(&mut files, "key", "localhost.key")?;
    let mut client = None;
    if connects {
        let ca = certificate(&mut files, "ca", "localhost.ca.pem")?;
        let mut table = Table::new();
        table.insert("ca".into(), ca.path.clone().into());
        table.insert("versions".into(), versions(client_version));
        // LAppS checks no name; elsewhere than here that would be no check at all.
        table.insert("verify_loopback_name".into(), false.into());
        client = Some(table);
        needed.push(ca);
    } else {
        files.ignore("ca", NO_CLIENT);
    }
    files.finish();
    if is_on != Some(true) {
        return Ok((None, client));
    }
    let mut tls = Table::new();
    tls.insert("cert".into(), cert.path.clone().into());
    tls.insert("key".into(), key.path.clone().into());
    tls.insert("versions".into(), versions(version));
    needed.extend([cert, key]);
    Ok((Some(tls), client))
}

/// The file that a key of `tls_certificates` names.
fn certificate(
    files: &mut Reader<'_>,
    key: &'static str,
    default: &str,
) -> Result<Certificate, ConfigError> {
    let named = files.text(key)?;
    Ok(Certificate {
        key,
        is_named: named.is_some(),
        path: named.unwrap_or_else(|| format!("{CERTIFICATES}/{default}")),
        is_of_server: key != "ca",
    })
}

/// One version, never both.
fn versions(number: Option<i64>) -> Value {
    let version = if number == Some(3) { "1.2" } else { "1.3" };
    Value::Array(vec![version.into()])
}

/// An access control list. A range whose first address is not the first one with its prefix is
/// taken for what it means.
pub(super) fn acl(table: &mut Reader<'_>) -> Result<Table, ConfigError> {
    let policy = table.text("policy")?.unwrap_or_else(|| "allow".to_owned());
    if policy != "allow" && policy != "deny" {
        return Err(table.error(
            "policy",
            &format!("is `{policy}` and must be allow or deny"),
        ));
    }
    let mut exclude = Vec::new();
    for range in table.texts("exclude")? {
        let known = Cidr::containing(&range);
        let known =
            known.map_err(|problem| table.error("exclude", &format!("is wrong: {problem}")))?;
        exclude.push(Value::from(known.to_string()));
    }
    let mut acl = Table::new();
    acl.insert("policy".into(), policy.into());
    acl.insert("exclude".into(), exclude.into());
    Ok(acl)
}

const COUNT_MAX: i64 = handler::WORKERS_MAX as i64;
const CONNECTIONS_DEFAULT: i64 = 10_000;
const FRAGMENT_BYTES: i64 = 1392;
const PORT: i64 = 5083;
const CERTIFICATES: &str = "/opt/lapps/etc/ssl/certs";
const NO_CLIENT: &str = "no service has `cws`, and clients are not asked for certificates";

/// Keys of early versions of LAppS.
const HISTORICAL: [&str; 5] = [
    "auto_fragment",
    "max_inbound_message_size",
    "network_latency_tolerance",
    "save_large_messages_as_files",
    "thread_pool",
];
