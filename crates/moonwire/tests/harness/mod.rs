//! What every process test needs: children that end with their test, and what they print.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) mod certificate;
pub(crate) mod load;

/// Longer than anything a test waits for takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The product, as built for these tests. Tests that run under nohup hand on that SIGHUP is to be
/// ignored, which a terminal does not.
pub(crate) fn moonwire() -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(env!("CARGO_BIN_EXE_moonwire"));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The same at the lowest priority, for services that take all that they get of the processors.
pub(crate) fn moonwire_aside() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19", env!("CARGO_BIN_EXE_moonwire")]);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A server in a process of its own, killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// What it prints after it was ready.
    lines: Receiver<String>,
    /// What it printed before it was ready and no test has asked for: a service may be done with
    /// all that it does before the server says that it listens.
    early: RefCell<VecDeque<String>>,
    /// `ws://127.0.0.1:PORT`, as the server printed it; empty of one that does not listen.
    pub(crate) url: String,
}

impl Server {
    /// `moonwire serve` with these arguments, on a port that the system chooses.
    pub(crate) fn moonwire(arguments: &[&str]) -> Self {
        Self::start(
            moonwire()
                .arg("serve")
                .args(["--listen", "127.0.0.1:0"])
                .args(arguments),
        )
    }

    /// Any server that prints `listening on URL` when it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let (mut server, line) = Self::start_until(command, "listening on ");
        let (_, rest) = line.split_once("listening on ").expect("it was awaited");
        let url = rest.split_whitespace().next().expect("a URL");
        server.url = url.trim_end_matches('/').into();
        server
    }

    /// Any server, and the line with this text that it prints when it is ready.
    pub(crate) fn start_until(command: &mut Command, ready: &str) -> (Self, String) {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = lines(&mut child);
        let mut server = Self {
            child,
            lines,
            early: RefCell::default(),
            url: String::new(),
        };
        loop {
            let line = server.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                let said = server.early.borrow();
                panic!("the server does not say {ready:?} ({error}): {said:?}")
            });
            if line.contains(ready) {
                return (server, line);
            }
            server.early.get_mut().push_back(line);
        }
    }

    /// The next line it prints that has this text.
    pub(crate) fn await_line(&self, text: &str) -> String {
        let mut said = String::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.line_within(left).unwrap_or_else(|error| {
                panic!("the server does not say {text:?} ({error}):\n{said}")
            });
            if line.contains(text) {
                return line;
            }
            said.push_str(&line);
            said.push('\n');
        }
    }

    /// The next line that it prints, to either output.
    pub(crate) fn next_line(&self) -> String {
        let line = self.line_within(PATIENCE);
        line.expect("a server that goes on says what the test waits for")
    }

    fn line_within(&self, patience: Duration) -> Result<String, RecvTimeoutError> {
        let early = self.early.borrow_mut().pop_front();
        early.map_or_else(|| self.lines.recv_timeout(patience), Ok)
    }

    pub(crate) fn address(&self) -> &str {
        self.url.split_once("://").expect("a URL has a scheme").1
    }

    /// Waits until clients have sent it messages for its services, which its /metrics say.
    pub(crate) fn await_messages(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let page = self.metrics();
            let counts = page.lines().filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                name.starts_with("moonwire_messages_in_total{")
                    .then(|| value.parse::<u64>().expect("a counter"))
            });
            if counts.sum::<u64>() > 0 {
                return;
            }
            assert!(Instant::now() < deadline, "no message came:\n{page}");
            // Nothing tells when a counter changes.
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// One value of /metrics.
    pub(crate) fn gauge(&self, name: &str) -> u64 {
        let page = self.metrics();
        let values = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let known = series.split('{').next() == Some(name);
            known.then(|| value.parse::<u64>().expect("a whole number"))
        });
        values.sum()
    }

    /// See [`memory_bytes`].
    pub(crate) fn memory_bytes(&self, key: &str) -> u64 {
        memory_bytes(self.id(), key)
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("the server is up");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.address());
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a whole page");
        page
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    /// Asks it to stop, and gives how it did.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.end_by(Signal::TERM)
    }

    /// Sends it a signal that ends it, and gives how it did.
    pub(crate) fn end_by(mut self, order: Signal) -> ExitStatus {
        signal(self.id(), order);
        wait(&mut self.child, PATIENCE).expect("a server ends after the signal")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end; one that hangs is killed and fails the test.
pub(crate) fn run(command: &mut Command) -> Outcome {
    Running::start(command).finish()
}

/// A command that is still at work, killed when dropped.
pub(crate) struct Running {
    child: Child,
    name: String,
    stdout: thread::JoinHandle<String>,
    stderr: thread::JoinHandle<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = text(child.stdout.take().expect("piped above"));
        let stderr = text(child.stderr.take().expect("piped above"));
        Self {
            child,
            name: format!("{command:?}"),
            stdout,
            stderr,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn finish(mut self) -> Outcome {
        let status = wait(&mut self.child, PATIENCE);
        self.child.kill().ok();
        self.child.wait().expect("our own child");
        let stdout = self.stdout.join().expect("a reader does not panic");
        let stderr = self.stderr.join().expect("a reader does not panic");
        let Some(status) = status else {
            panic!("{} hangs:\n{stdout}\n{stderr}", self.name);
        };
        Outcome {
            code: status.code(),
            stdout,
            stderr,
        }
    }
}

/// A line of /proc/PID/status that is in kB, such as VmRSS and VmHWM.
pub(crate) fn memory_bytes(id: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"));
    let status = status.expect("our own child");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    1024 * kilobytes
        .and_then(|n| n.parse::<u64>().ok())
        .expect("the kernel says it")
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(id: u32, signal: Signal) {
    let id = i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id");
    kill_process(id, signal).expect("our own child");
}

/// How a child ended; none when it has not within `patience`.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        // There is no wait with a timeout in std.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Both outputs of a child, line by line; read to their end, so that it never blocks on a pipe.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = child.stdout.take().expect("piped by the caller");
    let stderr = child.stderr.take().expect("piped by the caller");
    let outputs: [Box<dyn Read + Send>; 2] = [Box::new(stdout), Box::new(stderr)];
    for output in outputs {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens any more if the test is over.
                sender.send(line).ok();
            }
        });
    }
    lines
}

fn text(mut output: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).ok();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
