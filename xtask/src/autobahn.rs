//! `cargo xtask autobahn`: the Autobahn test suite against the server and the client.
//!
//! The suite's runners are foreign peers (`xtask/peers/autobahn.py`). What they find is compared
//! with `autobahn/expected.json`; a case that is better than expected fails as one that is worse.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Result, ensure};

use self::client::Client;
use self::expected::Expected;
use self::settings::{Role, Round, Runner, Settings};
use self::suite::Suite;
use self::verdicts::Verdicts;
use crate::server::Server;
use crate::step::Tally;
use crate::{peers, place};

mod client;
mod expected;
mod settings;
mod suite;
mod verdicts;

/// The rounds that the arguments choose, against the release build.
pub(crate) fn run(arguments: &[&str]) -> Result<ExitCode> {
    let settings = Settings::parse(arguments)?;
    let tally = rounds(&settings, Profile::Release)?;
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Sections 1 to 10 against the server that the tests have built: what fits into the test command.
pub(crate) fn quick() -> Result<Tally> {
    rounds(&Settings::quick(), Profile::Dev)
}

fn rounds(settings: &Settings, profile: Profile) -> Result<Tally> {
    ensure!(
        peers::install()? == ExitCode::SUCCESS,
        "the suite is a foreign peer, and peers are missing"
    );
    let moonwire = profile.build()?;
    let suite = Suite::new(&settings.globs)?;
    let expected = Expected::read()?;
    if settings.is_whole() {
        expected.check_size(suite.cases().len())?;
    }
    let mut tally = Tally::default();
    for &round in &settings.rounds {
        println!("{round}: {} cases", suite.cases().len());
        let (begin, runner) = (Instant::now(), settings.runner(round));
        let verdicts = verdicts(round, runner, &suite, &moonwire)?;
        let seconds = begin.elapsed().as_secs_f64();
        let differences = expected.differences(round.role, suite.cases(), &verdicts);
        let agreed = suite.cases().len() - differences.len();
        println!("{verdicts}");
        for difference in &differences {
            println!("   {difference}");
        }
        println!(
            "{round}: {agreed} of {} cases as expected, {seconds:.1} s, reports in {}",
            suite.cases().len(),
            verdicts.folder().display()
        );
        tally.passed += agreed as u64;
        tally.failed += differences.len() as u64;
    }
    Ok(tally)
}

fn verdicts(round: Round, runner: Runner, suite: &Suite, moonwire: &Path) -> Result<Verdicts> {
    match round.role {
        Role::Server => {
            let mut serve = Command::new(moonwire);
            serve.args(["serve", "--listen", "127.0.0.1:0"]);
            serve.args(round.tls.then_some("--dev-tls"));
            serve.args(["--driver", round.driver.name()]);
            serve.args(["--tls-records", round.driver.tls_records()]);
            let mut server = Server::start(&mut serve)?;
            let url = format!("{}/echo", server.url);
            let verdicts = suite.against_server(round, runner, &url)?;
            server.ensure_runs()?;
            Ok(verdicts)
        }
        Role::Client => {
            let client = Client::new(moonwire, round);
            suite.against_client(round, runner, &client)
        }
    }
}

/// Which of cargo's builds is tested.
#[derive(Clone, Copy)]
enum Profile {
    Dev,
    Release,
}

impl Profile {
    /// Path of the program.
    fn build(self) -> Result<PathBuf> {
        let mut build = place::cargo();
        let folder = match self {
            // As the tests with peers are built, whose program is there already.
            Self::Dev => {
                build.args(["test", "--workspace", "--test", "peers", "--no-run"]);
                "debug"
            }
            Self::Release => {
                build.args(["build", "--release", "-p", "moonwire", "--bin", "moonwire"]);
                "release"
            }
        };
        ensure!(build.status()?.success(), "moonwire does not build");
        Ok(place::target()?.join(folder).join("moonwire"))
    }
}
