//! Supervised children: the server under test is started, watched, and never left behind.
//!
//! One thread per child starts it, waits for it and lives as long as it does: the signal that a
//! child gets when its parent dies is tied to the thread that made it, not to the process.

pub(crate) mod inherited;
pub(crate) mod keeper;
mod output;
mod spawn;
mod state;
pub(crate) mod tree;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use self::output::Tail;
use crate::link::LinkEnd;
use crate::pauses::PauseLog;

/// What to start, where, and how to know that it is ready.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to the environment of this process.
    pub env: Vec<(OsString, OsString)>,
    /// The processors it may use; empty leaves it all of them.
    pub cpus: Vec<usize>,
    /// The file of a control group that it writes itself into before it is the program; `None`
    /// leaves it in that of this process.
    pub group: Option<PathBuf>,
    /// The end of a link it lives at.
    pub at: LinkEnd,
    /// Takes the lines that tell of pauses of its garbage collector, which then are in no tail.
    pub pauses: Option<PauseLog>,
    /// What says that it is ready.
    pub ready: Ready,
    /// How long that may take.
    pub ready_timeout: Duration,
}

/// What says that a child is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// A line of its standard output or error that contains this text.
    Line(String),
    /// Somebody listens there.
    Port(SocketAddr),
    /// Nothing: it is when it has been started.
    Started,
}

/// A running child. Dropping it kills its whole process group.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    ready_line: String,
    shared: Arc<Shared>,
}

impl ChildProcess {
    /// Starts the child and waits until it says that it is ready.
    pub fn start(spec: &ChildSpec) -> Result<Self, ProcessError> {
        let shared = Arc::new(Shared::default());
        let (news, events) = mpsc::channel();
        let supervised = Arc::clone(&shared);
        let own = spec.clone();
        std::thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervise(&own, &supervised, &news))
            .map_err(ProcessError::Start)?;
        let deadline = Instant::now() + spec.ready_timeout;
        let pid = match events.recv() {
            Ok(News::Started(Ok(pid))) => pid,
            Ok(News::Started(Err(error))) => return Err(ProcessError::Start(error)),
            Ok(News::Ready(_)) | Err(_) => {
                return Err(ProcessError::Start(io::Error::other(
                    "the supervisor ended",
                )));
            }
        };
        let mut child = Self {
            pid,
            ready_line: String::new(),
            shared,
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match &spec.ready {
                Ready::Line(_) => left,
                Ready::Started => return Ok(child),
                Ready::Port(_) => left.min(PORT_PERIOD),
            };
            match events.recv_timeout(wait) {
                Ok(News::Ready(line)) => {
                    child.ready_line = line;
                    return Ok(child);
                }
                Ok(News::Started(_)) => {}
                Err(mpsc::RecvTimeoutError::Timeout) if spec.is_listening() => {
                    return Ok(child);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let state = state::told(child.pid());
                    child.stop(Duration::ZERO);
                    let output = child.output_tail();
                    return Err(ProcessError::NotReady {
                        after: spec.ready_timeout,
                        output,
                        state,
                    });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let exit = child.wait_until(Instant::now() + LEFTOVERS_WAIT);
                    let output = child.output_tail();
                    return Err(ProcessError::Died {
                        exit: exit.unwrap_or_default(),
                        output,
                    });
                }
            }
        }
    }

    /// Its process id; valid for signals only while `exit` is `None`.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// The line by which it said that it was ready, if it was to say so.
    pub fn ready_line(&self) -> &str {
        &self.ready_line
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        *self.shared.exit()
    }

    /// The last lines of its standard output and error, oldest first.
    pub fn output_tail(&self) -> Vec<String> {
        self.shared.tail.lines()
    }

    /// Asks it to end (SIGTERM), waits for `grace`, then kills its process group.
    pub fn stop(&self, grace: Duration) -> Exit {
        if !grace.is_zero() {
            self.signal(|pid| rustix::process::kill_process(pid, Signal::TERM));
            if let Some(exit) = self.wait_until(Instant::now() + grace) {
                return exit;
            }
        }
        self.signal(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
        self.wait_until(Instant::now() + KILL_WAIT)
            .unwrap_or_default()
    }

    /// Waits until it has ended, but not past `deadline`.
    pub fn wait_until(&self, deadline: Instant) -> Option<Exit> {
        let mut exit = self.shared.exit();
        while exit.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            exit = match self.shared.ended.wait_timeout(exit, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *exit
    }

    /// Sends a signal unless the child has been reaped: under the lock its id cannot be reused.
    fn signal(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let exit = self.shared.exit();
        if exit.is_none() {
            // It may have ended by itself this moment; there is nothing left to do then.
            let _ = send(self.pid);
        }
    }
}

impl ChildSpec {
    fn is_listening(&self) -> bool {
        match &self.ready {
            Ready::Line(_) | Ready::Started => false,
            Ready::Port(address) => {
                let connect = || TcpStream::connect_timeout(address, PORT_PERIOD).is_ok();
                self.at.run(connect).unwrap_or(false)
            }
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The code it gave, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl fmt::Display for Exit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(to, "exit code {code}"),
            (None, Some(signal)) => write!(to, "killed by signal {signal}"),
            (None, None) => to.write_str("ended for an unknown reason"),
        }
    }
}

/// Why a child is not running.
#[derive(Debug)]
pub enum ProcessError {
    /// It could not be started.
    Start(io::Error),
    /// It ended before it was ready.
    Died {
        /// How.
        exit: Exit,
        /// The last it said.
        output: Vec<String>,
    },
    /// It did not say that it was ready, and was killed.
    NotReady {
        /// The time it was given.
        after: Duration,
        /// The last it said.
        output: Vec<String>,
        /// What its process did then; a clause.
        state: String,
    },
}

impl fmt::Display for ProcessError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = |output: &[String]| match output.last() {
            Some(line) => format!("; it said: {line}"),
            None => "; it said nothing".to_owned(),
        };
        match self {
            Self::Start(error) => write!(to, "the server could not be started: {error}"),
            Self::Died { exit, output } => {
                write!(
                    to,
                    "the server ended before it was ready ({exit}){}",
                    last(output)
                )
            }
            Self::NotReady {
                after,
                output,
                state,
            } => {
                write!(
                    to,
                    "the server was not ready after {after:?}{}; {state}",
                    last(output)
                )
            }
        }
    }
}

impl std::error::Error for ProcessError {}

#[derive(Debug, Default)]
struct Shared {
    /// Set once, under this lock, at the moment the child is reaped.
    exit: Mutex<Option<Exit>>,
    ended: Condvar,
    tail: Tail,
}

impl Shared {
    fn exit(&self) -> MutexGuard<'_, Option<Exit>> {
        self.exit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum News {
    Started(io::Result<Pid>),
    Ready(String),
}

/// How often a port is tried.
const PORT_PERIOD: Duration = Duration::from_millis(20);
/// How long to wait for the last output of a child that has ended: a grandchild that left the
/// process group may hold the pipe open for ever.
const LEFTOVERS_WAIT: Duration = Duration::from_millis(300);
/// A killed process ends as soon as the kernel lets it.
const KILL_WAIT: Duration = Duration::from_secs(10);

fn supervise(spec: &ChildSpec, shared: &Arc<Shared>, news: &mpsc::Sender<News>) {
    let started = spec.at.enter().and_then(|()| spawn::spawn(spec));
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            let _ = news.send(News::Started(Err(error)));
            return;
        }
    };
    let pid = Pid::from_child(&child);
    let kept = keeper::keep(pid);
    let _ = news.send(News::Started(Ok(pid)));
    let readers = read_output(&mut child, spec, shared, news);
    // Wait without reaping: while the zombie holds its id, nobody else can have it.
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    ) {}
    let mut exit = shared.exit();
    // Its children go with it.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    let status = child.wait().ok();
    drop(kept);
    // The readers end when the last writer of the pipes is gone.
    let _ = readers.recv_timeout(LEFTOVERS_WAIT);
    *exit = Some(Exit {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    });
    shared.ended.notify_all();
}

/// Starts a thread for each output; the receiver reports their end by disconnecting.
fn read_output(
    child: &mut Child,
    spec: &ChildSpec,
    shared: &Arc<Shared>,
    news: &mpsc::Sender<News>,
) -> mpsc::Receiver<()> {
    let (alive, ended) = mpsc::channel::<()>();
    let streams: [Option<Box<dyn io::Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as _),
        child.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    for stream in streams.into_iter().flatten() {
        let (shared, ready) = (Arc::clone(shared), spec.ready.clone());
        let pauses = spec.pauses.clone();
        let (news, alive) = (news.clone(), alive.clone());
        std::thread::spawn(move || {
            let _alive = alive;
            output::for_each_line(stream, |line| {
                let come = Instant::now();
                if pauses.as_ref().is_some_and(|log| log.take(line, come)) {
                    return;
                }
                // First: who is told that it is ready may look for the line.
                shared.tail.push(line);
                if matches!(&ready, Ready::Line(text) if line.contains(text)) {
                    let _ = news.send(News::Ready(line.to_owned()));
                }
            });
        });
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::pauses::PauseLines;

    fn shell(script: &str) -> ChildSpec {
        ChildSpec {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".into(), script.into()],
            env: Vec::new(),
            cpus: Vec::new(),
            group: None,
            at: LinkEnd::default(),
            pauses: None,
            ready: Ready::Line("ready".to_owned()),
            ready_timeout: Duration::from_secs(20),
        }
    }

    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }

    #[test]
    fn a_child_that_says_it_is_ready_is_ended_politely() {
        let script =
            "trap 'echo bye; exit 7' TERM; echo ready on port 9; while :; do sleep 0.05; done";
        let child = ChildProcess::start(&shell(script)).unwrap();
        assert_eq!(child.ready_line(), "ready on port 9");
        assert_eq!(child.exit(), None);
        let exit = child.stop(Duration::from_secs(20));
        assert_eq!(
            exit,
            Exit {
                code: Some(7),
                signal: None
            }
        );
        assert_eq!(child.output_tail(), ["ready on port 9", "bye"]);
    }

    #[test]
    fn lines_that_tell_of_pauses_are_in_no_tail() {
        let log = PauseLog::new(PauseLines::Pause);
        let spec = ChildSpec {
            pauses: Some(log.clone()),
            ..shell("echo gc pause 2.5 ms; echo gc pause; echo ready; exec sleep 600")
        };
        let child = ChildProcess::start(&spec).unwrap();
        assert_eq!(child.output_tail(), ["gc pause", "ready"]);
        let (pauses, _) = log.drain().into_parts();
        assert_eq!(pauses.len(), 1);
        assert_eq!(pauses[0].length, Duration::from_micros(2500));
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed_with_its_children() {
        let script = "trap '' TERM; sleep 600 & echo ready $!; while :; do sleep 0.05; done";
        let child = ChildProcess::start(&shell(script)).unwrap();
        let grandchild: i32 = child.ready_line()[6..].parse().unwrap();
        assert!(is_alive(grandchild));
        let exit = child.stop(Duration::from_millis(50));
        assert_eq!(
            exit,
            Exit {
                code: None,
                signal: Some(9)
            }
        );
        let deadline = Instant::now() + Duration::from_secs(10);
        while is_alive(grandchild) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(
            !is_alive(grandchild),
            "process {grandchild} was left behind"
        );
    }

    #[test]
    fn a_child_that_dies_at_once_is_reported_with_what_it_said() {
        let error = ChildProcess::start(&shell("echo no such port >&2; exit 3")).unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.contains("exit code 3"), "{sentence}");
        assert!(sentence.ends_with("it said: no such port"), "{sentence}");
    }

    #[test]
    fn a_child_that_is_never_ready_is_killed() {
        let mut spec = shell("echo $$; exec sleep 600");
        spec.ready_timeout = Duration::from_millis(300);
        let error = ChildProcess::start(&spec).unwrap_err();
        let ProcessError::NotReady { output, .. } = error else {
            panic!("{error}")
        };
        assert!(!is_alive(output[0].parse().unwrap()));
    }

    #[test]
    fn a_child_that_dies_later_is_noticed() {
        let child = ChildProcess::start(&shell("echo ready; kill -SEGV $$")).unwrap();
        let exit = child
            .wait_until(Instant::now() + Duration::from_secs(20))
            .unwrap();
        assert_eq!(exit.to_string(), "killed by signal 11");
        // Stopping a child that has ended says how it ended.
        assert_eq!(child.stop(Duration::from_secs(1)), exit);
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = ChildProcess::start(&shell("echo ready; exec sleep 600")).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!is_alive(pid));
    }

    #[test]
    fn a_child_that_says_nothing_is_ready_when_it_listens() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let spec = ChildSpec {
            ready: Ready::Port(listener.local_addr().unwrap()),
            ..shell("exec sleep 600")
        };
        assert!(ChildProcess::start(&spec).is_ok());
        drop(listener);
        let spec = ChildSpec {
            ready_timeout: Duration::from_millis(100),
            ..spec
        };
        let error = ChildProcess::start(&spec).unwrap_err();
        assert!(matches!(error, ProcessError::NotReady { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("; its process slept"), "{said}");
        assert!(said.ends_with(" of CPU time"), "{said}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let spec = ChildSpec {
            program: PathBuf::from("/no/such/program"),
            ..shell("")
        };
        let error = ChildProcess::start(&spec).unwrap_err();
        assert!(matches!(error, ProcessError::Start(_)), "{error}");
    }

    #[test]
    fn a_pinned_child_sees_only_its_processor() {
        let mut spec = shell("grep Cpus_allowed_list /proc/self/status; echo ready; sleep 600");
        spec.cpus = vec![0];
        let child = ChildProcess::start(&spec).unwrap();
        assert_eq!(child.output_tail()[0].split_whitespace().last(), Some("0"));
    }
}
