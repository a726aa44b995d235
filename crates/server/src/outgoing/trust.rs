//! Whose certificates a service's connections accept.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use moonwire_net::{ClientTls, NameCheck, TlsError, Trust};
use tracing::warn;

use crate::config::OutgoingTls;

/// The rules for wss://, made ready when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Trusted {
    rules: OutgoingTls,
    /// For servers whose certificate must be for their name.
    named: OnceLock<Result<ClientTls, String>>,
    /// For servers of this host, where any name will do if it is configured so.
    unnamed: OnceLock<Result<ClientTls, String>>,
    has_warned: AtomicBool,
}

impl Trusted {
    /// Reads the authority in the file, if there is one. Those of the system are read with the
    /// first connection that needs them: most services need none.
    pub(super) fn new(rules: &OutgoingTls) -> Result<Self, TlsError> {
        let trusted = Self {
            rules: rules.clone(),
            ..Self::default()
        };
        if rules.ca.is_some() {
            let named = trusted.load(NameCheck::Required)?;
            let _ = trusted.named.set(Ok(named));
        }
        Ok(trusted)
    }

    /// What the certificate of the server at `remote` is held to.
    pub(super) fn of(&self, host: &str, remote: SocketAddr) -> Result<ClientTls, String> {
        let is_here = remote.ip().to_canonical().is_loopback();
        let (cell, names) = if is_here && !self.rules.verify_loopback_name {
            (&self.unnamed, NameCheck::Skipped)
        } else {
            (&self.named, NameCheck::Required)
        };
        if names == NameCheck::Skipped && !self.has_warned.swap(true, Ordering::Relaxed) {
            warn!(
                "cws does not check the name in the certificate of {host}, nor of other servers at \
                 loopback addresses, because verify_loopback_name is false as in LAppS"
            );
        }
        let load = || self.load(names).map_err(|error| error.to_string());
        cell.get_or_init(load).clone()
    }

    fn load(&self, names: NameCheck) -> Result<ClientTls, TlsError> {
        let trust = match &self.rules.ca {
            Some(path) => Trust::Authorities(path.clone()),
            None => Trust::System,
        };
        ClientTls::with_rules(&trust, self.rules.versions, names)
    }
}
