//! The host of the contestants: this one, or that of an agent.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use moonwire_report::Environment;
use rustix::process::{Resource, getrlimit};

use super::path::Path;
use super::{BattleError, BattleSpec};
use crate::agent::{Agent, Preparation, Prepared};
use crate::bench::plan::{Cores, core_list};
use crate::cgroup::CpuLimits;
use crate::contestant::{Contestant, Kind, Surroundings, save, write_certificate};
use crate::environment;
use crate::kernel::Kernel;

/// Where contestants run.
pub(super) enum Host {
    Here,
    There(Box<There>),
}

/// An agent, and what it has told of its host.
pub(super) struct There {
    pub(super) agent: Arc<Agent>,
    prepared: Prepared,
}

impl Host {
    /// Connects to the agent, if there is one, and has it look for all that will be needed.
    pub(super) fn find(spec: &BattleSpec, replies: u32) -> Result<Self, BattleError> {
        let Some(target) = &spec.agent else {
            return Ok(Self::Here);
        };
        let agent = Agent::connect(target).map_err(BattleError::Agent)?;
        let names = |kind: Kind| {
            let all = spec.contestants.iter().chain([&spec.backend]);
            let of_kind = all.filter(move |one| one.kind() == kind);
            of_kind.map(Contestant::name).collect::<Vec<_>>()
        };
        let limits = spec.scenario.cpu_limits;
        let prepared = agent.prepare(Preparation {
            servers: names(Kind::Server),
            proxies: names(Kind::Proxy),
            replies,
            server_cpu_limit: limits.server,
            proxy_cpu_limit: limits.proxy,
        });
        Ok(Self::There(Box::new(There {
            prepared: prepared.map_err(BattleError::Agent)?,
            agent: Arc::new(agent),
        })))
    }

    /// How it was lost, if it was.
    pub(super) fn lost(&self) -> Option<BattleError> {
        match self {
            Self::Here => None,
            Self::There(there) => there.agent.lost().map(BattleError::Agent),
        }
    }

    /// The limits that this process has to see to.
    pub(super) fn limits_here(&self, limits: CpuLimits) -> CpuLimits {
        match self {
            Self::Here => limits,
            Self::There(_) => CpuLimits {
                server: None,
                proxy: None,
                ..limits
            },
        }
    }

    /// The processors of this host, shared out; all are the generator's where nobody else is here.
    pub(super) fn cores(&self) -> Cores {
        let cores = Cores::of_this_process();
        match self {
            Self::Here => cores,
            Self::There(_) => Cores {
                generator: [cores.generator, cores.server].concat(),
                server: Vec::new(),
            },
        }
    }

    /// How many processors the contestants have.
    pub(super) fn processors(&self, cores: &Cores) -> usize {
        match self {
            Self::Here => cores.server.len(),
            Self::There(there) => there.prepared.environment.cores as usize,
        }
    }

    /// The versions of those that are started there; the error is a sentence.
    pub(super) fn versions(
        &self,
        spec: &BattleSpec,
        around: &Surroundings,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut versions = match self {
            Self::Here => {
                let all = spec.contestants.iter().chain([&spec.backend]);
                versions(all, around)?
            }
            Self::There(there) => there.prepared.versions.clone(),
        };
        versions.extend(self::versions(spec.clients.iter(), around)?);
        Ok(versions)
    }

    /// The sums over the files of those that take part, each where it is started.
    pub(super) fn contestant_files(&self, spec: &BattleSpec) -> BTreeMap<String, String> {
        let mut files = match self {
            Self::Here => sums(spec.contestants.iter().chain([&spec.backend])),
            Self::There(there) => there.prepared.contestant_files.clone(),
        };
        files.extend(sums(spec.clients.iter()));
        files
    }

    /// Puts the certificate that clients trust where they look for it; the error is a sentence.
    pub(super) fn put_certificate(
        &self,
        certificate: &FilePath,
        key: &FilePath,
    ) -> Result<(), String> {
        match self {
            Self::Here => write_certificate(certificate, key),
            Self::There(there) => save(certificate, &there.prepared.certificate),
        }
    }

    /// The settings of its kernel.
    pub(super) fn kernel(&self, path: &Path) -> Kernel {
        match self {
            Self::Here => {
                let sysctls = path.link.in_server(environment::sysctls);
                Kernel {
                    descriptors_max: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
                    values: sysctls.unwrap_or_default(),
                }
            }
            Self::There(there) => Kernel {
                descriptors_max: there.prepared.descriptors_max,
                values: there.prepared.environment.sysctls.clone(),
            },
        }
    }

    /// Whether clients reach it by the loopback.
    pub(super) fn is_on_loopback(&self) -> bool {
        match self {
            Self::Here => true,
            Self::There(there) => there.agent.address().is_loopback(),
        }
    }

    /// Who runs where, in a sentence.
    pub(super) fn placement(&self, cores: &Cores) -> String {
        match self {
            Self::Here if cores.server.is_empty() => {
                "nobody is pinned: there is one processor".to_owned()
            }
            Self::Here => format!(
                "generator on processors {}, contestants and backends on {}",
                core_list(&cores.generator),
                core_list(&cores.server)
            ),
            Self::There(there) => format!(
                "generator here, contestants and backends at the agent {} ({}), each on all \
                 processors of its host",
                there.agent.place(),
                there.agent.address()
            ),
        }
    }

    /// What lies between it and the clients.
    pub(super) fn link(&self, path: &Path) -> String {
        match self {
            Self::Here => path.link.kind().to_string(),
            Self::There(there) => format!("the network to {}", there.agent.address()),
        }
    }

    /// Puts it into the result, where it is another one.
    pub(super) fn describe(&self, environment: &mut Environment) {
        if let Self::There(there) = self {
            environment.servers = Some(Box::new(there.prepared.environment.clone()));
        }
    }
}

fn sums<'a>(contestants: impl Iterator<Item = &'a Contestant>) -> BTreeMap<String, String> {
    let with_process = contestants.filter(|contestant| contestant.has_process());
    with_process
        .map(|contestant| (contestant.name(), contestant.sha256().to_owned()))
        .collect()
}

fn versions<'a>(
    contestants: impl Iterator<Item = &'a Contestant>,
    around: &Surroundings,
) -> Result<BTreeMap<String, String>, String> {
    let with_process = contestants.filter(|contestant| contestant.has_process());
    with_process
        .map(|contestant| Ok((contestant.name(), contestant.version(around)?)))
        .collect()
}
