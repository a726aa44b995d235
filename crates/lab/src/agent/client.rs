//! The lab's end of the connection to an agent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use moonwire_report::BackendShare;

use super::clock::{Estimate, Exchange};
use super::token::Token;
use super::wire::{
    Answer, LINE_BYTES_MAX, Preparation, Prepared, Reading, Request, Role, VERSION, Wire, WireError,
};
use super::{AgentError, HEARTBEAT, SILENCE_MAX};
use crate::sampling::Usage;

/// Which agent, and what it wants to know.
#[derive(Debug, Clone)]
pub struct AgentTarget {
    /// A name or an address, with a port.
    pub place: String,
    /// Its token, if it has one.
    pub token: Option<Token>,
}

/// An agent that works for this lab. Dropping it lets it go, and ends all that it has started.
#[derive(Debug)]
pub(crate) struct Agent {
    shared: Arc<Shared>,
    address: IpAddr,
    /// Its end ends the heartbeat.
    beating: Option<Sender<()>>,
    heartbeat: Option<JoinHandle<()>>,
}

/// The clocks of an agent's host less ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clocks {
    /// What the time of day differs by, for times in messages.
    pub(crate) real: Estimate,
    /// What the time since some start differs by, for samples.
    pub(crate) monotonic: Estimate,
}

#[derive(Debug)]
struct Shared {
    place: String,
    wire: Mutex<Wire>,
    /// How it was lost.
    lost: OnceLock<String>,
    /// Messages are being sent: connections are to be counted.
    is_sending: AtomicBool,
    usage: Mutex<BTreeMap<Role, Usage>>,
}

impl Agent {
    /// Connects and shows the token.
    pub(crate) fn connect(target: &AgentTarget) -> Result<Self, AgentError> {
        let place = target.place.clone();
        let (mut wire, answer) = greet(target).map_err(|why| AgentError::Unreachable {
            place: place.clone(),
            why,
        })?;
        if let Answer::Refused { sentence } = &answer {
            let sentence = sentence.clone();
            return Err(AgentError::Refused { place, sentence });
        }
        let Answer::Welcome { address } = answer else {
            let why = UNEXPECTED.to_owned();
            return Err(AgentError::Unreachable { place, why });
        };
        // The first exchange finds caches cold and would only take time later. An answer that is
        // late would be taken for the next one's.
        exchange(&mut wire).map_err(|error| AgentError::Lost {
            place: place.clone(),
            why: error.to_string(),
        })?;
        let shared = Arc::new(Shared {
            place,
            wire: Mutex::new(wire),
            lost: OnceLock::new(),
            is_sending: AtomicBool::new(false),
            usage: Mutex::default(),
        });
        let (beating, stopped) = mpsc::channel();
        let beaten = Arc::clone(&shared);
        let heartbeat = std::thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || {
                while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                    beaten.beat();
                }
            });
        Ok(Self {
            shared,
            address,
            beating: Some(beating),
            heartbeat: heartbeat.ok(),
        })
    }

    /// The address of its host, as this one reaches it.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Where it is, as it was named.
    pub(crate) fn place(&self) -> &str {
        &self.shared.place
    }

    /// How it was lost, if it was.
    pub(crate) fn lost(&self) -> Option<AgentError> {
        self.shared.lost()
    }

    /// Tells what there will be to do.
    pub(crate) fn prepare(&self, preparation: Preparation) -> Result<Prepared, AgentError> {
        let answer = self.ask(&Request::Prepare(preparation))?;
        let Answer::Prepared(prepared) = answer else {
            return Err(self.unexpected());
        };
        Ok(*prepared)
    }

    /// Compares the clocks of both hosts.
    pub(crate) fn clocks(&self) -> Result<Clocks, AgentError> {
        let mut wire = self.shared.wire();
        self.shared.lost().map_or(Ok(()), Err)?;
        let begun = Instant::now();
        let (mut real, mut monotonic) = (Vec::new(), Vec::new());
        let is_enough = |count| {
            let is_long = begun.elapsed() > EXCHANGE_TIME;
            count >= EXCHANGES_MAX || (is_long && count >= EXCHANGES_MIN)
        };
        while !is_enough(real.len()) {
            let times = exchange(&mut wire);
            let times = times.map_err(|error| self.shared.lose(error))?;
            real.push(times.map(|reading| reading.real_ns).into());
            monotonic.push(times.map(|reading| reading.monotonic_ns).into());
        }
        let estimates = Estimate::of(&real).zip(Estimate::of(&monotonic));
        let clocks = estimates.map(|(real, monotonic)| Clocks { real, monotonic });
        clocks.ok_or_else(|| AgentError::Refused {
            place: self.shared.place.clone(),
            sentence: "a clock was set while the clocks were compared".to_owned(),
        })
    }

    /// Asks for something and awaits the answer.
    pub(super) fn ask(&self, request: &Request) -> Result<Answer, AgentError> {
        self.shared.ask(request)
    }

    /// It did not answer what it was asked.
    pub(super) fn unexpected(&self) -> AgentError {
        self.shared.lose(UNEXPECTED)
    }

    /// Whether messages are being sent at the moment: while they are, connections are counted.
    pub(crate) fn set_sending(&self, is_sending: bool) {
        self.shared.is_sending.store(is_sending, Ordering::Relaxed);
    }

    /// How several servers have shared the work since they were watched.
    pub(crate) fn shares(&self) -> Vec<BackendShare> {
        self.set_sending(false);
        match self.ask(&Request::Spread) {
            Ok(Answer::Spread { shares }) => shares,
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// What a role used about a second ago.
    pub(crate) fn usage(&self, role: Role) -> Option<Usage> {
        let usage = &self.shared.usage;
        let usage = usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.get(&role).cloned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.beating.take();
        if let Some(heartbeat) = self.heartbeat.take() {
            let _ = heartbeat.join();
        }
    }
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, request: &Request) -> Result<Answer, AgentError> {
        let mut wire = self.wire();
        self.lost().map_or(Ok(()), Err)?;
        let answer = wire.send(request).and_then(|()| {
            let answer = wire.receive(patience(request), LINE_BYTES_MAX);
            answer.map(|(answer, _)| answer)
        });
        match answer {
            Ok(Answer::Failed { sentence }) => Err(AgentError::Refused {
                place: self.place.clone(),
                sentence,
            }),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.lose(error)),
        }
    }

    fn lost(&self) -> Option<AgentError> {
        let why = self.lost.get()?.clone();
        let place = self.place.clone();
        Some(AgentError::Lost { place, why })
    }

    /// After an error nobody knows which answer belongs to which request.
    fn lose(&self, why: impl ToString) -> AgentError {
        let why = self.lost.get_or_init(|| why.to_string()).clone();
        let place = self.place.clone();
        AgentError::Lost { place, why }
    }

    fn beat(&self) {
        let look = self.is_sending.load(Ordering::Relaxed);
        if let Ok(Answer::Alive { usage }) = self.ask(&Request::Alive { look }) {
            *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        }
    }
}

/// Says hello, and hears what comes back.
fn greet(target: &AgentTarget) -> Result<(Wire, Answer), String> {
    let addresses = target.place.to_socket_addrs();
    let addresses = addresses.map_err(|error| format!("give ADDR:PORT ({error})"))?;
    // Contestants are told addresses of this kind only.
    let addresses: Vec<SocketAddr> = addresses.filter(SocketAddr::is_ipv4).collect();
    let first = addresses.first().ok_or("it has no IPv4 address")?;
    let stream = TcpStream::connect_timeout(first, CONNECT_PATIENCE);
    let wire = stream.and_then(Wire::new);
    let mut wire = wire.map_err(|error| error.to_string())?;
    let hello = Request::Hello {
        version: VERSION,
        token: target.token.clone(),
    };
    let said = wire.send(&hello).and_then(|()| {
        let answer = wire.receive(SILENCE_MAX, LINE_BYTES_MAX);
        answer.map(|(answer, _)| answer)
    });
    let answer = said.map_err(|error| error.to_string())?;
    Ok((wire, answer))
}

/// Four readings: before, there, there, after.
struct Times([Reading; 4]);

impl Times {
    fn map(&self, clock: impl Fn(&Reading) -> i64) -> [i64; 4] {
        [0, 1, 2, 3].map(|index| clock(&self.0[index]))
    }
}

impl From<[i64; 4]> for Exchange {
    fn from([sent_ns, arrived_ns, left_ns, received_ns]: [i64; 4]) -> Self {
        Self {
            sent_ns,
            arrived_ns,
            left_ns,
            received_ns,
        }
    }
}

fn exchange(wire: &mut Wire) -> Result<Times, WireError> {
    let sent = Reading::now();
    wire.send(&Request::Clock)?;
    match wire.receive::<Answer>(SILENCE_MAX, LINE_BYTES_MAX)? {
        (Answer::Clock { arrived, left }, received) => Ok(Times([sent, arrived, left, received])),
        // Nothing that it says can be trusted then.
        _ => Err(WireError::Closed),
    }
}

/// How long an answer may take.
fn patience(request: &Request) -> Duration {
    match request {
        // Some start slowly, and one after the other; some end slowly.
        Request::Start(_) | Request::StartAgain | Request::Stop | Request::Prepare(_) => {
            START_PATIENCE
        }
        Request::Hello { .. }
        | Request::Clock
        | Request::Alive { .. }
        | Request::Watch { .. }
        | Request::Samples { .. }
        | Request::Pauses
        | Request::Spread
        | Request::Kill
        | Request::Death { .. } => SILENCE_MAX,
    }
}

/// Displays as a clause.
const UNEXPECTED: &str = "it answers something else than it was asked";
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const START_PATIENCE: Duration = Duration::from_secs(300);
/// Exchanges of times before a cell, and as many after it.
const EXCHANGES_MAX: usize = 200;
/// As many as there are at least, over a link that is slow.
const EXCHANGES_MIN: usize = 16;
/// No more than the least after so long.
const EXCHANGE_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// An agent that answers with `answer` what it is asked, and the time where that is `None`.
    fn agent(answer: fn(&Request) -> Option<Answer>) -> AgentTarget {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut wire = Wire::new(listener.accept().unwrap().0).unwrap();
            while let Ok((request, arrived)) = wire.receive::<Request>(SILENCE_MAX, 1000) {
                let time = || Answer::Clock {
                    arrived,
                    left: Reading::now(),
                };
                let answer = if matches!(request, Request::Hello { .. }) {
                    Answer::Welcome {
                        address: Ipv4Addr::LOCALHOST.into(),
                    }
                } else {
                    answer(&request).unwrap_or_else(time)
                };
                if wire.send(&answer).is_err() {
                    break;
                }
            }
        });
        AgentTarget { place, token: None }
    }

    #[test]
    fn clocks_of_an_agent_that_is_lost_are_not_compared() {
        let target = agent(|request| (!matches!(request, Request::Clock)).then_some(Answer::Done));
        let agent = Agent::connect(&target).unwrap();
        assert!(agent.clocks().is_ok());
        drop(agent.unexpected());
        let again = agent.clocks();
        assert!(matches!(again, Err(AgentError::Lost { .. })), "{again:?}");
        assert!(agent.ask(&Request::Spread).is_err());
    }

    #[test]
    fn an_agent_that_does_not_tell_the_time_is_not_used() {
        let connected = Agent::connect(&agent(|_| Some(Answer::Done)));
        assert!(
            matches!(connected, Err(AgentError::Lost { .. })),
            "{connected:?}"
        );
    }
}
