//! What a user types behind `cargo xtask autobahn`.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// Which side of a connection is under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Server,
    Client,
}

/// How the side under test asks the kernel for its sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Driver {
    Epoll,
    IoUring,
}

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }

    /// What is new is tried together.
    pub(crate) fn tls_records(self) -> &'static str {
        match self {
            Self::Epoll => "rustls",
            Self::IoUring => "own",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        [Self::Epoll, Self::IoUring]
            .into_iter()
            .find(|driver| driver.name() == name)
            .with_context(|| format!("there is no driver `{name}`: it is epoll or io_uring"))
    }
}

/// The suite once through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round {
    pub(crate) role: Role,
    pub(crate) tls: bool,
    pub(crate) driver: Driver,
}

impl Round {
    pub(crate) fn scheme(self) -> &'static str {
        if self.tls { "wss" } else { "ws" }
    }
}

/// Also the name of its folder of reports.
impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Server => "server",
            Role::Client => "client",
        };
        write!(f, "{role}-{}-{}", self.scheme(), self.driver.name())
    }
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: Vec<Round>,
    /// Cases that any of these matches.
    pub(crate) globs: Vec<String>,
    /// Whether plain rounds have the suite's own runner, too.
    pub(crate) original: bool,
}

/// Who runs the suite's cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    /// For Python 3, fast, without TLS.
    Kosoku,
    /// The suite's own, for Python 2.7, with TLS of its own: nothing comes between it and ours.
    Original,
}

impl Settings {
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self> {
        let (mut role, mut tls, mut globs) = (None, false, Vec::new());
        let mut driver = Driver::Epoll;
        let mut original = false;
        let mut arguments = arguments.iter().copied();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value.with_context(|| format!("{argument} wants a value\n\n{USAGE}"))
            };
            match argument {
                "--server" | "--client" => {
                    ensure!(role.is_none(), "--server or --client: both is the default");
                    role = Some(if argument == "--server" {
                        Role::Server
                    } else {
                        Role::Client
                    });
                }
                "--tls" => tls = true,
                "--original" => original = true,
                "--driver" => driver = Driver::parse(value()?)?,
                "--cases" => globs.push(value()?.to_string()),
                unknown => bail!("unknown argument `{unknown}`\n\n{USAGE}"),
            }
        }
        if globs.is_empty() {
            globs.push(ALL.into());
        }
        Ok(Self {
            rounds: rounds(role, tls, driver),
            globs,
            original,
        })
    }

    /// Sections 1 to 10 against a ws:// server, over each driver.
    pub(crate) fn quick() -> Self {
        Self {
            rounds: [Driver::Epoll, Driver::IoUring]
                .into_iter()
                .flat_map(|driver| rounds(Some(Role::Server), false, driver))
                .collect(),
            globs: vec!["[1-9].*".into(), "10.*".into()],
            original: false,
        }
    }

    pub(crate) fn runner(&self, round: Round) -> Runner {
        match round.tls || self.original {
            true => Runner::Original,
            false => Runner::Kosoku,
        }
    }

    /// Whether every case of the suite is chosen.
    pub(crate) fn is_whole(&self) -> bool {
        self.globs.iter().any(|glob| glob == ALL)
    }
}

/// A role by itself is tested plain or with TLS; TLS by itself in both roles.
fn rounds(role: Option<Role>, tls: bool, driver: Driver) -> Vec<Round> {
    let (roles, schemes) = match (role, tls) {
        (None, false) => (vec![Role::Server, Role::Client], vec![false, true]),
        (None, true) => (vec![Role::Server, Role::Client], vec![true]),
        (Some(role), tls) => (vec![role], vec![tls]),
    };
    let round = |role| schemes.iter().map(move |&tls| Round { role, tls, driver });
    roles.into_iter().flat_map(round).collect()
}

const ALL: &str = "*";

pub(crate) const USAGE: &str = "\
usage: cargo xtask autobahn [--server|--client] [--tls] [--driver epoll|io_uring]
                            [--cases GLOB]... [--original]

  without a role and --tls: both roles, each over ws:// and wss://; a role alone: over ws://
  --driver NAME    how ours asks the kernel for its sockets; with io_uring the records of TLS 1.3
                   are ours, too
  --cases '7.*'    only the cases that match; may be given several times
  --original       the suite's own runner over ws://, too: slow, and it needs a Python 2.7, as
                   each round over wss:// does
";

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Vec<String> {
        let settings = Settings::parse(arguments).unwrap();
        settings.rounds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_is_the_default() {
        let all = [
            "server-ws-epoll",
            "server-wss-epoll",
            "client-ws-epoll",
            "client-wss-epoll",
        ];
        assert_eq!(names(&[]), all);
        assert!(Settings::parse(&[]).unwrap().is_whole());
    }

    #[test]
    fn rounds_are_chosen() {
        assert_eq!(names(&["--server"]), ["server-ws-epoll"]);
        let ring = ["--tls", "--client", "--driver", "io_uring"];
        assert_eq!(names(&ring), ["client-wss-io_uring"]);
        assert_eq!(names(&["--tls"]), ["server-wss-epoll", "client-wss-epoll"]);
    }

    #[test]
    fn cases_are_chosen() {
        let settings = Settings::parse(&["--cases", "1.*", "--cases", "7.1.6"]).unwrap();
        assert_eq!(settings.globs, ["1.*", "7.1.6"]);
        assert!(!settings.is_whole());
    }

    #[test]
    fn the_runner_is_chosen() {
        use Runner::{Kosoku, Original};
        let runners = |arguments: &[&str]| {
            let settings = Settings::parse(arguments).unwrap();
            let rounds = settings.rounds.iter();
            rounds
                .map(|round| settings.runner(*round))
                .collect::<Vec<_>>()
        };
        assert_eq!(runners(&[]), [Kosoku, Original, Kosoku, Original]);
        assert_eq!(runners(&["--original"]), [Original; 4]);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (arguments, complaint) in [
            (vec!["--driver", "iouring"], "it is epoll or io_uring"),
            (vec!["--driver"], "wants a value"),
            (vec!["--server", "--client"], "both is the default"),
            (vec!["1.*"], "unknown argument `1.*`"),
        ] {
            let error = Settings::parse(&arguments).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
