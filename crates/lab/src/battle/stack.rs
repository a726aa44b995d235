//! What runs for a cell, here or at an agent, and what is seen of it.

use std::sync::Arc;

use moonwire_load::Phase;
use moonwire_report::{BackendShare, Cell};

use super::cell::SAMPLING_PERIOD;
use super::spread::Spread;
use crate::agent::{Agent, Estimate, RemoteSampler, RemoteStack, Role};
use crate::cgroup::CpuGroup;
use crate::contestant::{MetricsPage, RunningStack, StoppedStack};
use crate::pauses::Pauses;
use crate::sampling::{Newest, Sampler, Series, Usage};

/// A server, or a proxy with servers behind it.
#[derive(Debug)]
pub(super) enum Stack {
    Here(Box<RunningStack>),
    There(RemoteStack),
}

impl Stack {
    pub(super) fn urls(&self) -> &[String] {
        match self {
            Self::Here(stack) => stack.urls(),
            Self::There(stack) => &stack.started().urls,
        }
    }

    pub(super) fn amplify_urls(&self) -> &[String] {
        match self {
            Self::Here(stack) => stack.amplify_urls(),
            Self::There(stack) => &stack.started().amplify_urls,
        }
    }

    pub(super) fn broadcast_urls(&self) -> &[String] {
        match self {
            Self::Here(stack) => stack.broadcast_urls(),
            Self::There(stack) => &stack.started().broadcast_urls,
        }
    }

    /// Where the servers tell what they count while they run; empty unless all of them do. Those
    /// at an agent are not asked, because not all of them can be reached from here.
    pub(super) fn metrics(&self) -> Vec<MetricsPage> {
        match self {
            Self::Here(stack) => stack.metrics(),
            Self::There(_) => Vec::new(),
        }
    }

    /// Whether a proxy stands in front of the servers.
    pub(super) fn has_proxy(&self) -> bool {
        match self {
            Self::Here(stack) => stack.proxy().is_some(),
            Self::There(stack) => stack.started().has_proxy,
        }
    }

    /// What the role may use of the processors.
    pub(super) fn cpu_limit(&self, role: Role) -> Option<f64> {
        let processors = |group: Option<&Arc<CpuGroup>>| group.map(|group| group.processors());
        match (self, role) {
            (Self::Here(stack), Role::Measured) => processors(stack.measured_group()),
            (Self::Here(stack), Role::Backends) => processors(stack.backend_group()),
            (Self::There(stack), Role::Measured) => stack.started().measured_cpu_limit,
            (Self::There(stack), Role::Backends) => stack.started().backend_cpu_limit,
        }
    }

    /// Begins to sample a role.
    pub(super) fn watch(&self, role: Role) -> Watcher {
        match (self, role) {
            (Self::Here(stack), Role::Measured) => {
                let group = stack.measured_group().cloned();
                let roots = stack.measured_roots();
                Watcher::Here(Sampler::start_in(&roots, group, SAMPLING_PERIOD))
            }
            (Self::Here(stack), Role::Backends) => {
                let group = stack.backend_group().cloned();
                let roots = stack.backend_roots();
                Watcher::Here(Sampler::start_in(&roots, group, SAMPLING_PERIOD))
            }
            (Self::There(stack), role) => Watcher::There(stack.watch(role)),
        }
    }

    /// Pauses of the garbage collector of what is measured that were told since this was called
    /// last; `None` where its runtime tells none.
    pub(super) fn measured_pauses(&self) -> Option<Pauses> {
        match self {
            Self::Here(stack) => stack.measured_pauses(),
            Self::There(stack) => stack.measured_pauses(),
        }
    }

    pub(super) fn kill_measured(&self) {
        match self {
            Self::Here(stack) => stack.kill_measured(),
            Self::There(stack) => stack.kill_measured(),
        }
    }

    /// Starts what was killed; the error is a sentence.
    pub(super) fn start_measured_again(&mut self) -> Result<(), String> {
        match self {
            Self::Here(stack) => {
                let again = stack.start_measured_again();
                again.map_err(|error| error.to_string())
            }
            Self::There(stack) => {
                let again = stack.start_measured_again();
                again.map_err(|error| error.to_string())
            }
        }
    }

    /// Who ended, and how, after a cell that all were to serve.
    pub(super) fn death(&self, cell: &Cell) -> Option<String> {
        match self {
            Self::Here(stack) => stack.death(cell),
            Self::There(stack) => stack.death(cell),
        }
    }

    /// Stops all of it; the error is a sentence.
    pub(super) fn stop(self) -> Result<StoppedStack, String> {
        match self {
            Self::Here(stack) => stack.stop(),
            Self::There(stack) => stack.stop().map_err(|error| error.to_string()),
        }
    }

    /// What its clock differs by from that of the load; `None` where they are one. The error is a
    /// sentence.
    pub(super) fn clock(&self) -> Result<Option<Estimate>, String> {
        match self {
            Self::Here(_) => Ok(None),
            Self::There(stack) => {
                let clocks = stack.clocks();
                let clocks = clocks.map_err(|error| error.to_string())?;
                Ok(Some(clocks.real))
            }
        }
    }
}

/// Looks at a role until it is stopped.
#[derive(Debug)]
pub(super) enum Watcher {
    Here(Sampler),
    There(RemoteSampler),
}

impl Watcher {
    pub(super) fn stop(self) -> Series {
        match self {
            Self::Here(sampler) => sampler.stop(),
            Self::There(sampler) => sampler.stop(),
        }
    }

    /// What those that wait may be told meanwhile, under this name.
    pub(super) fn told(&self, name: String) -> Told {
        match self {
            Self::Here(sampler) => Told::Here(name, sampler.newest()),
            Self::There(sampler) => Told::There(name, sampler.role(), sampler.agent()),
        }
    }
}

/// What processes use at the moment.
#[derive(Debug)]
pub(super) enum Told {
    Here(String, Newest),
    There(String, Role, Arc<Agent>),
}

impl Told {
    pub(super) fn usage(&self) -> Option<Usage> {
        match self {
            Self::Here(name, newest) => newest.usage(name),
            Self::There(name, role, agent) => Some(Usage {
                name: name.clone(),
                ..agent.usage(*role)?
            }),
        }
    }
}

/// How several servers share connections and work, looked at while messages are sent.
#[derive(Debug)]
pub(super) enum Shares {
    Here(Spread),
    There(Arc<Agent>),
}

impl Shares {
    pub(super) fn begin(stack: &Stack) -> Self {
        match stack {
            Stack::Here(stack) => Self::Here(Spread::begin(stack)),
            Stack::There(stack) => Self::There(stack.agent()),
        }
    }

    pub(super) fn note(&mut self, phase: Phase) {
        match self {
            Self::Here(spread) if phase == Phase::Sending => spread.look(),
            Self::Here(_) => {}
            Self::There(agent) => agent.set_sending(phase == Phase::Sending),
        }
    }

    pub(super) fn end(self) -> Vec<BackendShare> {
        match self {
            Self::Here(spread) => spread.end(),
            Self::There(agent) => agent.shares(),
        }
    }
}
