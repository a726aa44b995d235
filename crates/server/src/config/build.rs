//! From the shape of the file to a configuration that can run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use moonwire_net::{
    CertificateFiles, ClientCertificates, ServerTlsRules, TlsVersions, connections_per_table,
};
use toml::Spanned;
use tracing_subscriber::EnvFilter;

use super::acl::acl;
use super::file::{CertificateTable, ClientTlsTable, File, OneOrMany, ServerTable, TlsTable};
use super::limits::{Bounded, fit_memory, fit_write_queue, limits};
use super::sentence::Text;
use super::service::{Services, allowed_origins};
use super::{Config, ConfigError, LogFormat, OnBrokenService, OutgoingTls, Overrides, Tls};
use crate::handler;

/// Reads and checks the whole of it.
pub(super) fn config(text: &Text<'_>, overrides: &Overrides) -> Result<Config, ConfigError> {
    let file: File = toml::from_str(text.text).map_err(|error| text.refused(&error))?;
    let connections = connections(text, &file.server, overrides)?;
    let workers = workers(text, &file.server, overrides, connections)?;
    enough_workers(text, &file.server, workers, connections)?;
    let mut limits = limits(text, &file.limits)?;
    let on_broken_service = on_broken_service(text, &file.server)?;
    let origins = file.server.allowed_origins.as_deref().unwrap_or_default();
    let mut reader = Services {
        text,
        overrides,
        workers,
        limits: &limits,
        on_broken_service,
        allowed_origins: allowed_origins(text, origins)?,
        shipped: None,
    };
    let (services, standalone) = reader.read(&file.services)?;
    let shipped = reader.shipped;
    if workers == 0
        && let Some(service) = services.first()
    {
        let sentence = format!(
            "workers = 0 serves no connections, so nobody can reach `{}`",
            service.name
        );
        let workers = file.server.workers.as_ref();
        return Err(text.error(workers.map_or(0..0, Spanned::span), sentence));
    }
    fit_write_queue(text, &file.limits, &services, &mut limits)?;
    fit_memory(text, &file.limits, &services, &mut limits)?;
    // What cannot be read is refused even where nobody listens.
    let mut listen = listen(text, &file.server, overrides)?;
    if workers == 0 {
        listen.clear();
    }
    Ok(Config {
        listen,
        remarks: unused_listen(text, &file.server, workers)
            .into_iter()
            .collect(),
        workers,
        connections,
        driver: chosen(
            text,
            "driver",
            file.server.driver.as_ref(),
            overrides.driver,
        )?,
        acl: acl(text, &file.server.acl)?,
        on_broken_service,
        connection_weight: connection_weight(text, &file.server)?,
        log: log(text, &file.server)?,
        log_format: log_format(text, &file.server)?,
        tls: tls(text, file.tls.as_ref(), overrides)?,
        tls_rules: tls_rules(text, &file, overrides)?,
        client_tls: client_tls(text, &file.client_tls)?,
        limits,
        services,
        standalone,
        shipped,
    })
}

/// How many workers hold so many connections, if each has a table of descriptors of its own.
fn workers_needed(connections: usize) -> usize {
    connections.div_ceil(connections_per_table())
}

/// Whether the workers that were asked for hold the connections that were.
fn enough_workers(
    text: &Text<'_>,
    table: &ServerTable,
    workers: usize,
    connections: Option<usize>,
) -> Result<(), ConfigError> {
    let needed = connections.map_or(0, workers_needed);
    if workers == 0 || needed <= workers {
        return Ok(());
    }
    let sentence = format!(
        "{} connections take {needed} workers, as one may open only so many files here (ulimit \
         -Hn), and workers = {workers}",
        connections.unwrap_or_default()
    );
    match &table.connections {
        Some(connections) => Err(text.error(connections.span(), sentence)),
        None => Err(ConfigError::new(sentence)),
    }
}

fn connections(
    text: &Text<'_>,
    table: &ServerTable,
    overrides: &Overrides,
) -> Result<Option<usize>, ConfigError> {
    if overrides.connections.is_some() || table.connections.is_none() {
        return Ok(overrides.connections);
    }
    let bounds = 1..=CONNECTIONS_MAX;
    Bounded { text }
        .or("connections", &table.connections, 1, bounds)
        .map(Some)
}

fn workers(
    text: &Text<'_>,
    table: &ServerTable,
    overrides: &Overrides,
    connections: Option<usize>,
) -> Result<usize, ConfigError> {
    let bounds = 0..=handler::WORKERS_MAX;
    let Some(workers) = overrides.workers else {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let needed = connections.map_or(1, workers_needed);
        let default = cores.max(needed).min(handler::WORKERS_MAX);
        return Bounded { text }.or("workers", &table.workers, default, bounds);
    };
    if bounds.contains(&workers) {
        return Ok(workers);
    }
    let (min, max) = (bounds.start(), bounds.end());
    let sentence = format!("workers = {workers} must be from {min} to {max}");
    Err(ConfigError::new(sentence))
}

/// A name of a few: that of the command line, or else that of the file.
fn chosen<T: FromStr<Err = String> + Default>(
    text: &Text<'_>,
    key: &str,
    written: Option<&Spanned<String>>,
    wins: Option<T>,
) -> Result<T, ConfigError> {
    let read = |name: &Spanned<String>| {
        let (place, name) = (name.span(), name.get_ref());
        let wrong = |problem| text.error(place, format!("{key} = \"{name}\" {problem}"));
        name.parse().map_err(wrong)
    };
    let written = written.map(read).transpose()?;
    Ok(wins.or(written).unwrap_or_default())
}

fn on_broken_service(text: &Text<'_>, table: &ServerTable) -> Result<OnBrokenService, ConfigError> {
    let Some(name) = &table.on_broken_service else {
        return Ok(OnBrokenService::Stop);
    };
    match name.get_ref().as_str() {
        "stop" => Ok(OnBrokenService::Stop),
        "skip" => Ok(OnBrokenService::Skip),
        other => {
            let sentence = format!("on_broken_service = \"{other}\" must be \"stop\" or \"skip\"");
            Err(text.error(name.span(), sentence))
        }
    }
}

fn connection_weight(text: &Text<'_>, table: &ServerTable) -> Result<f64, ConfigError> {
    let Some(weight) = &table.connection_weight else {
        return Ok(1.0);
    };
    let (number, bounds) = (*weight.get_ref(), 0.0..=1000.0);
    if bounds.contains(&number) {
        return Ok(number);
    }
    let sentence = format!("connection_weight = {number} must be from 0 to 1000");
    Err(text.error(weight.span(), sentence))
}

fn log(text: &Text<'_>, table: &ServerTable) -> Result<String, ConfigError> {
    let Some(log) = &table.log else {
        return Ok("info".to_owned());
    };
    let filter = log.get_ref();
    check_log_filter(filter)
        .map_err(|problem| text.error(log.span(), format!("log = \"{filter}\" {problem}")))?;
    Ok(filter.clone())
}

/// Whether `filter` says what to log as `RUST_LOG` does; otherwise the end of a sentence that
/// begins with where it was written.
pub fn check_log_filter(filter: &str) -> Result<(), String> {
    match EnvFilter::try_new(filter) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "is not a log filter ({error}); write error, warn, info, debug or trace, or such for \
             one module as in moonwire_server=debug,warn"
        )),
    }
}

fn listen(
    text: &Text<'_>,
    table: &ServerTable,
    overrides: &Overrides,
) -> Result<Vec<SocketAddr>, ConfigError> {
    let configured = match &table.listen {
        Some(listen) => configured_listen(text, listen)?,
        None => vec![SocketAddr::from(([127, 0, 0, 1], PORT))],
    };
    if overrides.listen.is_empty() {
        return Ok(configured);
    }
    let error = |sentence: String| ConfigError::new(format!("--listen: {sentence}"));
    addresses(&overrides.listen, &error)
}

/// That the file says where to listen although nobody does.
fn unused_listen(text: &Text<'_>, table: &ServerTable, workers: usize) -> Option<String> {
    let listen = table.listen.as_ref().filter(|_| workers == 0)?;
    // What an installation of LAppS is converted to names an address always.
    text.file?;
    let sentence = "`listen` is not used: with workers = 0 nobody can connect";
    Some(text.error(listen.span(), sentence).to_string())
}

fn configured_listen(
    text: &Text<'_>,
    listen: &Spanned<OneOrMany>,
) -> Result<Vec<SocketAddr>, ConfigError> {
    let error = |sentence: String| text.error(listen.span(), sentence);
    if listen.get_ref().0.is_empty() {
        return Err(error(
            "`listen` is empty; name at least one address".to_owned(),
        ));
    }
    addresses(&listen.get_ref().0, &error)
}

/// Refuses an address that is named twice: both listeners would be bound, as those of several
/// workers are, and each get a part of the connections. A port of 0 is another one each time.
fn addresses(
    listen: &[String],
    error: &dyn Fn(String) -> ConfigError,
) -> Result<Vec<SocketAddr>, ConfigError> {
    let parse = |addr: &String| {
        addr.parse::<SocketAddr>().map_err(|_| {
            error(format!(
                "`{addr}` is not an address to listen on; write IP:PORT such as 127.0.0.1:5083 \
                 or [::]:5083"
            ))
        })
    };
    let listen = listen.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let canonical = |addr: &SocketAddr| (addr.ip().to_canonical(), addr.port());
    for (place, addr) in listen.iter().enumerate() {
        let before = &listen[..place];
        if addr.port() != 0
            && before
                .iter()
                .any(|other| canonical(other) == canonical(addr))
        {
            return Err(error(format!(
                "the address {addr} is there twice; name each address once"
            )));
        }
    }
    Ok(listen)
}

fn log_format(text: &Text<'_>, table: &ServerTable) -> Result<LogFormat, ConfigError> {
    let Some(format) = &table.log_format else {
        return Ok(LogFormat::Text);
    };
    format
        .get_ref()
        .parse()
        .map_err(|error: String| text.error(format.span(), error))
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "compact" => Ok(Self::Compact),
            _ => Err(format!(
                "the log format `{name}` must be `text` or `compact`"
            )),
        }
    }
}

fn tls(
    text: &Text<'_>,
    table: Option<&Spanned<TlsTable>>,
    overrides: &Overrides,
) -> Result<Option<Tls>, ConfigError> {
    if overrides.dev_tls {
        return Ok(Some(Tls::SelfSigned));
    }
    let Some(table) = table else { return Ok(None) };
    let TlsTable { cert, key, dev, .. } = table.get_ref();
    let (cert, key) = match (cert, key, dev) {
        (None, None, true) => return Ok(Some(Tls::SelfSigned)),
        (Some(cert), Some(key), false) => (cert, key),
        (Some(_), None, false) => {
            return Err(text.error(table.span(), "[tls] has a `cert` but no `key`"));
        }
        (None, Some(_), false) => {
            return Err(text.error(table.span(), "[tls] has a `key` but no `cert`"));
        }
        (None, None, false) | (_, _, true) => {
            return Err(text.error(
                table.span(),
                "[tls] needs `cert` and `key`, or `dev = true` and neither of them",
            ));
        }
    };
    let mut files = vec![certificate_files(text, cert, key)?];
    for CertificateTable { cert, key } in &table.get_ref().more {
        files.push(certificate_files(text, cert, key)?);
    }
    Ok(Some(Tls::Files(files)))
}

fn certificate_files(
    text: &Text<'_>,
    cert: &Spanned<String>,
    key: &Spanned<String>,
) -> Result<CertificateFiles, ConfigError> {
    Ok(CertificateFiles {
        certificate: readable(text, "cert", cert)?,
        key: readable(text, "key", key)?,
    })
}

fn tls_rules(
    text: &Text<'_>,
    file: &File,
    overrides: &Overrides,
) -> Result<ServerTlsRules, ConfigError> {
    let table = file.tls.as_ref().map(Spanned::get_ref);
    Ok(ServerTlsRules {
        versions: tls_versions(text, table.and_then(|table| table.versions.as_ref()))?,
        records: chosen(
            text,
            "tls_records",
            file.server.tls_records.as_ref(),
            overrides.tls_records,
        )?,
        clients: table.map_or(Ok(None), |table| client_certificates(text, table))?,
    })
}

fn client_certificates(
    text: &Text<'_>,
    table: &TlsTable,
) -> Result<Option<ClientCertificates>, ConfigError> {
    let is_required = match &table.client_auth {
        None => true,
        Some(auth) => match auth.get_ref().as_str() {
            "required" => true,
            "optional" => false,
            other => {
                let sentence =
                    format!("client_auth = \"{other}\" must be \"required\" or \"optional\"");
                return Err(text.error(auth.span(), sentence));
            }
        },
    };
    match (&table.client_ca, &table.client_auth) {
        (Some(authorities), _) => Ok(Some(ClientCertificates {
            authorities: readable(text, "client_ca", authorities)?,
            is_required,
        })),
        (None, Some(auth)) => {
            let sentence = "`client_auth` needs `client_ca`, the authorities of clients";
            Err(text.error(auth.span(), sentence))
        }
        (None, None) => Ok(None),
    }
}

fn tls_versions(
    text: &Text<'_>,
    versions: Option<&Spanned<Vec<String>>>,
) -> Result<TlsVersions, ConfigError> {
    let Some(versions) = versions else {
        return Ok(TlsVersions::Both);
    };
    let mut named: Vec<&str> = versions.get_ref().iter().map(String::as_str).collect();
    named.sort_unstable();
    named.dedup();
    match named[..] {
        ["1.2", "1.3"] => Ok(TlsVersions::Both),
        ["1.2"] => Ok(TlsVersions::Tls12),
        ["1.3"] => Ok(TlsVersions::Tls13),
        _ => {
            let sentence = "the `versions` of TLS must be \"1.2\", \"1.3\" or both";
            Err(text.error(versions.span(), sentence))
        }
    }
}

fn client_tls(text: &Text<'_>, table: &ClientTlsTable) -> Result<OutgoingTls, ConfigError> {
    let default = OutgoingTls::default();
    let ca = table.ca.as_ref().map(|ca| readable(text, "ca", ca));
    let verify = table.verify_loopback_name;
    Ok(OutgoingTls {
        ca: ca.transpose()?,
        versions: tls_versions(text, table.versions.as_ref())?,
        verify_loopback_name: verify.unwrap_or(default.verify_loopback_name),
    })
}

/// The path of a file that exists and may be read.
fn readable(text: &Text<'_>, key: &str, value: &Spanned<String>) -> Result<PathBuf, ConfigError> {
    let path = text.relative(value.get_ref());
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(text.error(
            value.span(),
            format!(
                "`{key}` names {}, which cannot be read: {error}",
                path.display()
            ),
        )),
    }
}

/// The port of LAppS, whose services this server runs.
const PORT: u16 = 5083;

/// What all tables of descriptors of the most workers hold with a limit of 1,048,576.
const CONNECTIONS_MAX: usize = 100_000_000;
