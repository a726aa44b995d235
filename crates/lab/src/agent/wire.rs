//! What a lab and its agent say to each other: a line of JSON each, one answer to each request.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use moonwire_report::{BackendShare, Counted, Environment};
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::SILENCE_MAX;
use super::token::Token;
use crate::sampling::{Sample, Usage};

/// Of the messages. Both ends have the same one, or do not talk.
pub(super) const VERSION: u32 = 2;
/// The longest line; what [`fitting`] lets into one is less than half of it.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;
/// The longest line of somebody who has not shown the token.
pub(super) const HELLO_BYTES_MAX: usize = 4096;
/// Samples that go in one line, and processors in them, each of which counts as one.
const PARTS_PER_LINE: usize = 1000;

/// Pauses that go in one line.
pub(super) const PAUSES_PER_LINE: usize = 5000;

/// How many of these samples go in one line.
pub(super) fn fitting<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> usize {
    let mut parts = 0;
    let fits = |sample: &&Sample| {
        parts += 1 + sample.processors.len();
        parts <= PARTS_PER_LINE
    };
    samples.into_iter().take_while(fits).count()
}

/// From the lab.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// Always the first.
    Hello {
        version: u32,
        #[serde(default)]
        token: Option<Token>,
    },
    /// Once, before anything is started.
    Prepare(Preparation),
    /// What time is it?
    Clock,
    /// The lab is still there. With `look`, connections of the servers are counted.
    Alive { look: bool },
    /// Starts contestants.
    Start(Lineup),
    /// Begins to sample a role.
    Watch { role: Role },
    /// Ends that, and asks for the samples until there are no more.
    Samples { role: Role },
    /// Asks for pauses of the garbage collector of what is measured, until there are no more.
    Pauses,
    /// How connections and work were spread over several servers since they were watched.
    Spread,
    /// Kills what is measured.
    Kill,
    /// Starts it again, at the same ports.
    StartAgain,
    /// Who has ended.
    Death { in_trouble: bool },
    /// Stops all that was started.
    Stop,
}

/// What there will be to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// Names of servers that take part.
    pub(crate) servers: Vec<String>,
    /// Names of proxies that take part.
    pub(crate) proxies: Vec<String>,
    /// Replies of an amplifying service.
    pub(crate) replies: u32,
    /// What the servers of a cell may use of the processors.
    pub(crate) server_cpu_limit: Option<f64>,
    /// What a proxy may use of them.
    pub(crate) proxy_cpu_limit: Option<f64>,
}

/// Which contestants to start, by names that the agent knows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lineup {
    pub(crate) backend: String,
    pub(crate) backends: usize,
    pub(crate) backend_workers: u32,
    pub(crate) proxy: Option<String>,
    pub(crate) proxy_workers: u32,
    pub(crate) tls: bool,
    /// Whether the limits on CPU hold for them.
    pub(crate) is_limited: bool,
}

/// Whose samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// The proxy, or the servers if there is none.
    Measured,
    /// The servers behind a proxy.
    Backends,
}

/// From the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The lab has it from now on, and reaches it at this address.
    Welcome {
        address: IpAddr,
    },
    /// It does not talk to this lab; a sentence. Nothing follows.
    Refused {
        sentence: String,
    },
    /// What was asked for cannot be done; a sentence.
    Failed {
        sentence: String,
    },
    Prepared(Box<Prepared>),
    Clock {
        arrived: Reading,
        left: Reading,
    },
    Alive {
        usage: BTreeMap<Role, Usage>,
    },
    Started(Started),
    Samples {
        samples: Vec<TimedSample>,
        more: bool,
    },
    /// `None` where its runtime tells none.
    Pauses {
        pauses: Option<TimedPauses>,
    },
    Spread {
        shares: Vec<BackendShare>,
    },
    Death {
        sentence: Option<String>,
    },
    Stopped {
        killed: Vec<String>,
        counted: Option<Counted>,
    },
    Done,
}

/// The agent's host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Prepared {
    pub(crate) environment: Environment,
    /// Of those that take part, by their names.
    pub(crate) versions: BTreeMap<String, String>,
    /// The sums over their files there, by their names.
    pub(crate) contestant_files: BTreeMap<String, String>,
    /// That of all contestants, in PEM. Its key stays there.
    pub(crate) certificate: String,
    /// The most descriptors that a process may have.
    pub(crate) descriptors_max: u64,
}

/// Where contestants are that were started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) urls: Vec<String>,
    pub(crate) amplify_urls: Vec<String>,
    pub(crate) broadcast_urls: Vec<String>,
    pub(crate) has_proxy: bool,
    pub(crate) measured_cpu_limit: Option<f64>,
    pub(crate) backend_cpu_limit: Option<f64>,
}

/// A sample with the time of the agent's monotonic clock.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TimedSample {
    pub(super) at_ns: i64,
    #[serde(flatten)]
    pub(super) sample: Sample,
}

/// Pauses with times of the agent's monotonic clock.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TimedPauses {
    pub(super) pauses: Vec<TimedPause>,
    /// Those that found no room.
    pub(super) left_out: u64,
    pub(super) more: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct TimedPause {
    pub(super) ended_ns: i64,
    pub(super) length_ns: u64,
}

/// Both clocks of a host at one moment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Reading {
    pub(super) real_ns: i64,
    pub(super) monotonic_ns: i64,
}

impl Reading {
    pub(super) fn now() -> Self {
        Self {
            real_ns: clock_ns(ClockId::Realtime),
            monotonic_ns: clock_ns(ClockId::Monotonic),
        }
    }
}

fn clock_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
}

/// Why nothing more comes. Displays as a clause.
#[derive(Debug)]
pub(super) enum WireError {
    Closed,
    Silent(Duration),
    TooLong(usize),
    Unreadable(serde_json::Error),
    System(io::Error),
}

impl WireError {
    /// The kernel ends a connection that was cut off, at times before whoever waits for a line.
    fn of(error: io::Error) -> Self {
        match error.kind() == io::ErrorKind::TimedOut {
            true => Self::Silent(SILENCE_MAX),
            false => Self::System(error),
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => to.write_str("the connection was closed"),
            Self::Silent(time) => write!(to, "nothing came for {time:?}"),
            Self::TooLong(bytes) => write!(to, "a line was longer than {bytes} bytes"),
            Self::Unreadable(error) => write!(to, "what came was not understood: {error}"),
            Self::System(error) => write!(to, "{error}"),
        }
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        // A time that waits for company to be sent is late.
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        end_when_cut_off(&stream)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), WireError> {
        let mut line = serde_json::to_vec(message).map_err(WireError::Unreadable)?;
        line.push(b'\n');
        let sent = self.stream.get_mut().write_all(&line);
        sent.map_err(WireError::of)
    }

    /// The next message, and when it was here.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
        bytes_max: usize,
    ) -> Result<(T, Reading), WireError> {
        let line = self.line(patience, bytes_max)?;
        let arrived = Reading::now();
        let message = serde_json::from_slice(&line).map_err(WireError::Unreadable)?;
        Ok((message, arrived))
    }

    /// The deadline is that of the whole line: who sends a byte now and then is not there.
    fn line(&mut self, patience: Duration, bytes_max: usize) -> Result<Vec<u8>, WireError> {
        let deadline = Instant::now() + patience;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::Silent(patience));
            }
            let timeout = self.stream.get_ref().set_read_timeout(Some(left));
            timeout.map_err(WireError::System)?;
            let come = match self.stream.fill_buf() {
                Ok([]) => return Err(WireError::Closed),
                Ok(come) => come,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(WireError::of(error)),
            };
            let end = come.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(come.len());
            if line.len() + taken > bytes_max {
                return Err(WireError::TooLong(bytes_max));
            }
            line.extend_from_slice(&come[..taken]);
            self.stream.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(line);
            }
        }
    }
}

/// Some answers take minutes, and a host that is cut off says nothing of that. Probes ask while all
/// is acknowledged (RFC 9293, 3.8.4), the user timeout counts while something is not (RFC 5482).
fn end_when_cut_off(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, SILENCE_MAX.as_millis() as u32)?;
    Ok(())
}

/// Whether it is only the time of waiting that is over.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

/// How often a host that says nothing is asked whether it is there.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Who does not read for so long is not there.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::sampling::ProcessorTimes;

    fn pair() -> (TcpStream, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, Wire::new(listener.accept().unwrap().0).unwrap())
    }

    fn receive(wire: &mut Wire) -> Result<Request, WireError> {
        let received = wire.receive(Duration::from_secs(20), 64);
        received.map(|(request, _)| request)
    }

    #[test]
    fn lines_have_a_bound_and_are_requests() {
        let (mut near, mut wire) = pair();
        near.write_all(b"{\"request\":\"clock\"}\n{\"request\":\"alive\",\"look\":true}\nls\n")
            .unwrap();
        near.write_all(&[b'x'; 65]).unwrap();
        assert!(matches!(receive(&mut wire), Ok(Request::Clock)));
        assert!(matches!(
            receive(&mut wire),
            Ok(Request::Alive { look: true })
        ));
        assert!(matches!(receive(&mut wire), Err(WireError::Unreadable(_))));
        assert!(matches!(receive(&mut wire), Err(WireError::TooLong(64))));
    }

    #[test]
    fn whoever_is_gone_or_silent_is_told_apart() {
        let (near, mut wire) = pair();
        let silent = wire.receive::<Request>(Duration::from_millis(10), 64);
        assert!(matches!(silent, Err(WireError::Silent(_))), "{silent:?}");
        drop(near);
        assert!(matches!(receive(&mut wire), Err(WireError::Closed)));
    }

    #[test]
    fn pauses_fit_into_a_line() {
        let pause = TimedPause {
            ended_ns: i64::MAX,
            length_ns: u64::MAX,
        };
        let pauses = Some(TimedPauses {
            pauses: vec![pause; PAUSES_PER_LINE],
            left_out: u64::MAX,
            more: true,
        });
        let line = serde_json::to_vec(&Answer::Pauses { pauses }).unwrap();
        assert!(line.len() < LINE_BYTES_MAX / 2, "{}", line.len());
    }

    #[test]
    fn samples_keep_all_that_they_hold_and_fit_into_a_line() {
        let sampler = crate::sampling::Sampler::start(
            &[std::process::id() as i32],
            Duration::from_secs(3600),
        );
        let mut sample = sampler.stop().0.remove(0);
        sample.throttling = Some(crate::cgroup::Throttling {
            throttled_ns: u64::MAX,
            ..Default::default()
        });
        for processors in [0, 64] {
            sample.processors = vec![ProcessorTimes::default(); processors];
            let timed = |sample: Sample| TimedSample {
                at_ns: i64::MAX,
                sample,
            };
            let mut samples = vec![sample.clone(); 2000];
            samples.truncate(fitting(&samples));
            let count = samples.len();
            assert_eq!(count, 1000 / (1 + processors));
            let line = serde_json::to_vec(&Answer::Samples {
                samples: samples.into_iter().map(timed).collect(),
                more: true,
            });
            let line = line.unwrap();
            assert!(line.len() < LINE_BYTES_MAX / 2, "{}", line.len());
            let Answer::Samples { samples, more } = serde_json::from_slice(&line).unwrap() else {
                panic!("another answer");
            };
            assert!(more && samples.len() == count);
            let without_time = |it: &Sample| serde_json::to_value(it).unwrap();
            let last = &samples.last().unwrap().sample;
            assert_eq!(without_time(last), without_time(&sample));
        }
    }
}
