//! Who takes part in a contest: a description, and the small programs and configurations that
//! belong to it, in a folder of their own.

mod certificate;
mod client;
mod counters;
mod file;
mod metrics;
mod roster;
mod running;
mod stack;
mod template;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use moonwire_load::TimeUnit;
use rustix::process::{Pid, Signal};

pub(crate) use self::certificate::{
    save, write as write_certificate, write_for as write_certificate_for,
};
pub(crate) use self::client::run_client;
pub use self::client::{ClientFigures, LatencyFrom, LatencyMicros};
pub use self::file::Kind;
use self::file::{ContestantFile, Endpoint, TimeUnit as Unit, Variant};
pub(crate) use self::metrics::{MetricsPage, Told};
pub use self::roster::Roster;
pub(crate) use self::running::{RunningContestant, StartError, death_deadline};
pub(crate) use self::stack::{RunningStack, StackSpec, StoppedStack};
pub(crate) use self::template::{Errand, Surroundings};
use crate::pauses::PauseLog;
use crate::process::{ChildSpec, Ready};
use crate::scenario::Service;

/// A contestant in one of its variants.
#[derive(Debug, Clone)]
pub struct Contestant {
    id: String,
    file: ContestantFile,
    /// Its programs and configurations: names and contents.
    files: Vec<(String, String)>,
    variant: Variant,
    /// The command that installs it; none for what is always here.
    install: Option<String>,
    /// Of the files of its folder.
    sha256: String,
}

impl Contestant {
    /// `ID/VARIANT`, or `ID` alone.
    pub fn name(&self) -> String {
        match self.variant.name.as_str() {
            "" => self.id.clone(),
            variant => format!("{}/{variant}", self.id),
        }
    }

    /// SHA-256 of the files that it is made of, its description among them.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// What it is, in a few words.
    pub fn description(&self) -> &str {
        let own = self.variant.description.as_deref();
        own.unwrap_or(&self.file.description)
    }

    /// Whether, as a proxy, it sends all connections of an address to one server.
    pub(crate) fn is_sticky(&self) -> bool {
        self.variant.sticky
    }

    /// Whether it answers messages, passes them on or sends them.
    pub fn kind(&self) -> Kind {
        self.file.kind
    }

    /// The command that installs it; none for what is always here.
    pub fn install_command(&self) -> Option<&str> {
        self.install.as_deref()
    }

    /// Whether it is a server with an amplifying service.
    pub fn is_amplifying(&self) -> bool {
        self.variant.amplify != Some(false) && self.has_amplify()
    }

    fn has_amplify(&self) -> bool {
        self.has(|endpoint| endpoint.amplify.is_some())
    }

    /// Whether it is a server that sends each message to all that have subscribed.
    pub fn is_broadcasting(&self) -> bool {
        self.variant.broadcast != Some(false) && self.has(|endpoint| endpoint.broadcast.is_some())
    }

    /// Whether it is a server with this service.
    pub(crate) fn has_service(&self, service: Service) -> bool {
        match service {
            Service::Echo => true,
            Service::Amplify => self.is_amplifying(),
            Service::Broadcast => self.is_broadcasting(),
        }
    }

    /// Whether it has something without TLS and with it.
    fn has(&self, what: impl Fn(&Endpoint) -> bool) -> bool {
        let endpoints = [&self.file.plain, &self.file.tls];
        let has_one = |endpoint: &Option<Endpoint>| endpoint.as_ref().is_some_and(&what);
        endpoints.into_iter().all(has_one)
    }

    /// The unit of the times in its amplifying service.
    pub fn amplify_time_unit(&self) -> TimeUnit {
        match self.file.amplify_time_unit {
            Unit::Micros => TimeUnit::Microseconds,
            Unit::Millis => TimeUnit::Milliseconds,
        }
    }

    /// The most workers that it can have; `None` for as many as it is told.
    pub fn workers_max(&self) -> Option<u32> {
        self.file.workers_max
    }

    /// The connections that it is measured with when nothing else is said.
    pub(crate) fn connections(&self) -> Option<u32> {
        self.variant.connections
    }

    /// What it is called in files.
    pub(crate) fn file_name(&self) -> String {
        self.name().replace('/', "_")
    }

    /// Whether it has processes: a control has none.
    pub(crate) fn has_process(&self) -> bool {
        self.file.plain.is_some()
    }

    /// Its version as it tells it itself; the error is a sentence that says how it is installed.
    pub(crate) fn version(&self, around: &Surroundings) -> Result<String, String> {
        let command = self.fill_all(&self.file.version, around);
        let Some((program, args)) = command.split_first() else {
            return Ok("no process".to_owned());
        };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command.envs(self.env(around));
        let answer = output_of(command, VERSION_PATIENCE);
        let answer = answer.filter(|answer| answer.status.success());
        // Some programs tell it on standard error.
        let said = answer.and_then(|answer| {
            let first_line = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let line = text.lines().map(str::trim).find(|line| !line.is_empty());
                line.map(str::to_owned)
            };
            first_line(&answer.stdout).or_else(|| first_line(&answer.stderr))
        });
        said.ok_or_else(|| {
            let install = self.install.as_deref();
            let install =
                install.map_or_else(String::new, |how| format!("; install it with `{how}`"));
            format!("the contestant {} is not here{install}", self.id)
        })
    }

    /// Its programs and configurations: names and contents.
    pub(crate) fn files(&self, around: &Surroundings) -> Vec<(&str, String)> {
        let is_template = |name: &str| self.file.templates.iter().any(|it| it == name);
        let content = |name: &str, text: &str| match is_template(name) {
            true => around.fill_file(text, &self.id, &self.variant.values),
            false => text.to_owned(),
        };
        let files = self.files.iter();
        files
            .map(|(name, text)| (name.as_str(), content(name, text)))
            .collect()
    }

    /// How its processes are started, in this order; the last one is the contestant itself.
    pub(crate) fn children(
        &self,
        tls: bool,
        around: &Surroundings,
        cpus: &[usize],
    ) -> Vec<ChildSpec> {
        let Some(endpoint) = self.endpoint(tls) else {
            return Vec::new();
        };
        let child = |start: &[String], ready: Option<&String>, address: IpAddr, port: u16| {
            let mut command = self.fill_all(start, around).into_iter();
            ChildSpec {
                program: command.next().unwrap_or_default().into(),
                args: command.map(OsString::from).collect(),
                env: self.env(around),
                cpus: cpus.to_vec(),
                group: None,
                at: around.at.clone(),
                pauses: self.file.gc.map(|gc| PauseLog::new(gc.lines)),
                ready: match ready {
                    Some(text) => Ready::Line(text.clone()),
                    None => Ready::Port((address, port).into()),
                },
                ready_timeout: READY_TIMEOUT,
            }
        };
        let others = endpoint.also.iter().zip(&around.ports[1..]);
        let local = Ipv4Addr::LOCALHOST.into();
        let others =
            others.map(|(also, port)| child(&also.start, also.ready.as_ref(), local, *port));
        let (ready, port) = (self.file.ready.as_ref(), around.ports[0]);
        let itself = child(&endpoint.start, ready, around.address, port);
        others.chain([itself]).collect()
    }

    /// Where a server's echo is, or a proxy itself: the path is the server's then.
    pub(crate) fn url(&self, tls: bool, around: &Surroundings) -> String {
        match self
            .endpoint(tls)
            .and_then(|endpoint| endpoint.url.as_ref())
        {
            Some(url) => self.fill(url, around),
            None => {
                let scheme = if tls { "wss" } else { "ws" };
                format!("{scheme}://{}:{}", around.address, around.ports[0])
            }
        }
    }

    /// Where a server's amplifying service is, if it has one.
    pub(crate) fn amplify_url(&self, tls: bool, around: &Surroundings) -> Option<String> {
        let url = self.endpoint(tls)?.amplify.as_ref()?;
        (self.variant.amplify != Some(false)).then(|| self.fill(url, around))
    }

    /// Where a server sends each message to all that have subscribed, if it does.
    pub(crate) fn broadcast_url(&self, tls: bool, around: &Surroundings) -> Option<String> {
        let url = self.endpoint(tls)?.broadcast.as_ref()?;
        (self.variant.broadcast != Some(false)).then(|| self.fill(url, around))
    }

    fn endpoint(&self, tls: bool) -> Option<&Endpoint> {
        let endpoint = if tls {
            &self.file.tls
        } else {
            &self.file.plain
        };
        endpoint.as_ref()
    }

    fn env(&self, around: &Surroundings) -> Vec<(OsString, OsString)> {
        let env = self.file.env.iter();
        env.map(|(name, value)| (name.into(), self.fill(value, around).into()))
            .collect()
    }

    fn fill_all(&self, texts: &[String], around: &Surroundings) -> Vec<String> {
        texts.iter().map(|text| self.fill(text, around)).collect()
    }

    fn fill(&self, text: &str, around: &Surroundings) -> String {
        around.fill(text, &self.id, &self.variant.values)
    }
}

/// A virtual machine that is busy starts Node in a second or two.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a program says that ends within a time, and is killed with all of its group otherwise.
fn output_of(mut command: Command, patience: Duration) -> Option<Output> {
    command.process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().ok()?;
    let pid = Pid::from_child(&child);
    let (told, output) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where it took too long.
        let _ = told.send(child.wait_with_output());
    });
    let output = output.recv_timeout(patience);
    if output.is_err() {
        // The thread has not reaped it, or it has ended this moment.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    output.ok()?.ok()
}

/// Some runtimes take seconds to start.
const VERSION_PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
