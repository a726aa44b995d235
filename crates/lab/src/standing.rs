//! A contestant that stays until it is stopped, for whoever wants to try something on it by hand.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::check::CheckSpec;
use crate::contestant::{
    Contestant, Kind, RunningStack, StackSpec, Surroundings, write_certificate,
};
use crate::process::tree;

/// How it is started.
#[derive(Debug, Clone)]
pub struct StandingSpec {
    /// Who else there is, and where they are.
    pub around: CheckSpec,
    /// With TLS.
    pub tls: bool,
    /// Threads or processes, of a server and of a proxy.
    pub workers: u32,
    /// The processors it may use; empty leaves it to the kernel.
    pub cpus: Vec<usize>,
}

/// A running contestant, a proxy with a server behind it.
pub struct Standing {
    stack: RunningStack,
    certificate: Option<PathBuf>,
    /// Its files, gone with it.
    _folder: TempDir,
}

impl Standing {
    /// Starts it, and returns when it is ready. The error is a sentence.
    pub fn start(contestant: &Contestant, spec: &StandingSpec) -> Result<Self, String> {
        let (backend, proxy) = match contestant.kind() {
            Kind::Server => (contestant, None),
            Kind::Proxy => (&spec.around.backend, Some(contestant)),
            Kind::Client => {
                let name = contestant.name();
                return Err(format!(
                    "{name} is a generator: there is nothing to connect to"
                ));
            }
        };
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|error| format!("no folder for its files: {error}"))?;
        let around = Surroundings::new(&spec.around.program, &spec.around.peers, folder.path());
        for part in proxy.into_iter().chain([backend]) {
            part.version(&around)?;
        }
        write_certificate(&around.certificate, &around.key)?;
        let stack = StackSpec {
            backend,
            backends: 1,
            backend_workers: spec.workers,
            backend_cpus: &spec.cpus,
            backend_group: None,
            proxy,
            proxy_workers: spec.workers,
            proxy_cpus: &spec.cpus,
            proxy_group: None,
            tls: spec.tls,
        };
        let stack = RunningStack::start(&stack, &around, &folder.path().join("run"));
        Ok(Self {
            stack: stack.map_err(|error| error.clause())?,
            certificate: spec.tls.then(|| around.certificate.clone()),
            _folder: folder,
        })
    }

    /// Where it echoes.
    pub fn urls(&self) -> &[String] {
        self.stack.urls()
    }

    /// The certificate to trust, in PEM.
    pub fn certificate(&self) -> Option<&Path> {
        self.certificate.as_deref()
    }

    /// Its processes, and theirs.
    pub fn pids(&self) -> Vec<i32> {
        tree::pids(&[self.stack.proxy_roots(), self.stack.backend_roots()].concat())
    }

    /// Why it is not there any more; None while it is.
    pub fn death(&self) -> Option<String> {
        self.stack.any_death()
    }

    /// Stops it.
    pub fn stop(self) -> Result<(), String> {
        self.stack.stop().map(drop)
    }
}
