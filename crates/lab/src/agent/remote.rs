//! Contestants at an agent, as the lab has them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moonwire_report::Cell;

use super::AgentError;
use super::client::{Agent, Clocks};
use super::wire::{Answer, Lineup, Reading, Request, Role, Started, TimedSample};
use crate::contestant::StoppedStack;
use crate::pauses::{PAUSES_MAX, Pause, Pauses};
use crate::sampling::{Sample, Series};

/// Contestants that an agent has started. Whoever drops it without stopping them leaves that to the
/// end of the connection.
#[derive(Debug)]
pub(crate) struct RemoteStack {
    agent: Arc<Agent>,
    started: Started,
    /// As they were compared last.
    clocks: Mutex<Clocks>,
}

impl RemoteStack {
    pub(crate) fn start(agent: &Arc<Agent>, lineup: Lineup) -> Result<Self, AgentError> {
        let clocks = agent.clocks()?;
        let Answer::Started(started) = agent.ask(&Request::Start(lineup))? else {
            return Err(agent.unexpected());
        };
        Ok(Self {
            agent: Arc::clone(agent),
            started,
            clocks: Mutex::new(clocks),
        })
    }

    pub(crate) fn started(&self) -> &Started {
        &self.started
    }

    /// Compares the clocks.
    pub(crate) fn clocks(&self) -> Result<Clocks, AgentError> {
        let clocks = self.agent.clocks()?;
        *self.clocks.lock().unwrap_or_else(PoisonError::into_inner) = clocks;
        Ok(clocks)
    }

    /// Begins to sample a role. One that cannot be sampled any more has no samples.
    pub(crate) fn watch(&self, role: Role) -> RemoteSampler {
        // Whether it was lost is found out by whoever asks for the samples.
        let _ = self.agent.ask(&Request::Watch { role });
        let clocks = *self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        RemoteSampler {
            agent: Arc::clone(&self.agent),
            role,
            ahead_ns: clocks.monotonic.offset_ns,
        }
    }

    /// Pauses of the garbage collector of what is measured that were told since this was called
    /// last, with times of this host's clock; `None` where its runtime tells none.
    pub(crate) fn measured_pauses(&self) -> Option<Pauses> {
        let clocks = *self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        let (anchor, ahead_ns) = (Anchor::now(), clocks.monotonic.offset_ns);
        let (mut kept, mut left_out): (Vec<Pause>, u64) = (Vec::new(), 0);
        while kept.len() < PAUSES_MAX {
            // Whether it was lost is found out by whoever asks it for more.
            let Ok(Answer::Pauses { pauses }) = self.agent.ask(&Request::Pauses) else {
                break;
            };
            let come = pauses?;
            left_out += come.left_out;
            kept.extend(come.pauses.into_iter().filter_map(|pause| {
                Some(Pause {
                    ended: anchor.moment(pause.ended_ns, ahead_ns)?,
                    length: Duration::from_nanos(pause.length_ns),
                })
            }));
            if !come.more {
                break;
            }
        }
        Some(Pauses::new(kept, left_out))
    }

    pub(crate) fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }

    pub(crate) fn kill_measured(&self) {
        // That it cannot be started again says it all.
        let _ = self.agent.ask(&Request::Kill);
    }

    pub(crate) fn start_measured_again(&self) -> Result<(), AgentError> {
        self.agent.ask(&Request::StartAgain).map(drop)
    }

    /// Who ended, and how, after a cell that all were to serve.
    pub(crate) fn death(&self, cell: &Cell) -> Option<String> {
        let in_trouble = cell.ended_early.is_some() || !cell.errors.is_empty();
        match self.agent.ask(&Request::Death { in_trouble }) {
            Ok(Answer::Death { sentence }) => sentence,
            Ok(_) => Some(self.agent.unexpected().to_string()),
            // That the agent is lost says nothing of who ran there.
            Err(_) => None,
        }
    }

    pub(crate) fn stop(self) -> Result<StoppedStack, AgentError> {
        let Answer::Stopped { killed, counted } = self.agent.ask(&Request::Stop)? else {
            return Err(self.agent.unexpected());
        };
        Ok(StoppedStack { killed, counted })
    }
}

/// A sampler at an agent.
#[derive(Debug)]
pub(crate) struct RemoteSampler {
    agent: Arc<Agent>,
    role: Role,
    /// What the agent's monotonic clock is ahead of ours.
    ahead_ns: i64,
}

impl RemoteSampler {
    /// Takes a last look there and fetches all that was seen, with times of this host's clock.
    pub(crate) fn stop(self) -> Series {
        let anchor = Anchor::now();
        let mut samples: Vec<Sample> = Vec::new();
        while samples.len() < SAMPLES_MAX {
            let role = self.role;
            let Ok(Answer::Samples {
                samples: come,
                more,
            }) = self.agent.ask(&Request::Samples { role })
            else {
                break;
            };
            let own = come.into_iter();
            samples.extend(own.filter_map(|sample| anchor.sample(sample, self.ahead_ns)));
            if !more {
                break;
            }
        }
        Series(samples)
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn agent(&self) -> Arc<Agent> {
        Arc::clone(&self.agent)
    }
}

/// A moment in the two ways in which this process has it.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    at: Instant,
    monotonic_ns: i64,
}

impl Anchor {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            monotonic_ns: Reading::now().monotonic_ns,
        }
    }

    /// What a clock that is ahead told, as a moment here; `None` where there was no such moment.
    fn moment(&self, told_ns: i64, ahead_ns: i64) -> Option<Instant> {
        let own_ns = told_ns.checked_sub(ahead_ns)?;
        let passed_ns = self.monotonic_ns.checked_sub(own_ns)?;
        let passed = Duration::from_nanos(passed_ns.unsigned_abs());
        match passed_ns >= 0 {
            true => self.at.checked_sub(passed),
            false => self.at.checked_add(passed),
        }
    }

    /// The sample at its moment here.
    fn sample(&self, timed: TimedSample, ahead_ns: i64) -> Option<Sample> {
        Some(Sample {
            at: self.moment(timed.at_ns, ahead_ns)?,
            ..timed.sample
        })
    }
}

/// As a sampler keeps at most.
const SAMPLES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Sampler;

    #[test]
    fn samples_come_at_the_moment_that_they_were_taken() {
        let pid = std::process::id() as i32;
        let sample = Sampler::start(&[pid], Duration::from_secs(3600))
            .stop()
            .0
            .remove(0);
        let anchor = Anchor {
            at: Instant::now() + Duration::from_secs(100),
            monotonic_ns: 500_000_000_000,
        };
        // The other host has been up for a day longer.
        let ahead_ns = 86_400_000_000_000;
        let at = |own_ns: i64| {
            let sample = sample.clone();
            let at_ns = own_ns + ahead_ns;
            anchor
                .sample(TimedSample { at_ns, sample }, ahead_ns)
                .unwrap()
                .at
        };
        assert_eq!(at(499_000_000_000), anchor.at - Duration::from_secs(1));
        assert_eq!(at(500_250_000_000), anchor.at + Duration::from_millis(250));
    }
}
