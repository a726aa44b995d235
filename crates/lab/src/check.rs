//! Whether a contestant can take part: it is started, answers one echo and is stopped, without TLS
//! and with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use moonwire_load::{Control, Pacing, Scenario, Settings, Stop, Target, Workload};

use crate::contestant::{
    Contestant, RunningContestant, StartError, Surroundings, certificate_paths, write_certificate,
};

/// What a check found.
#[derive(Debug)]
pub struct Check {
    /// As the contestant tells it itself.
    pub version: String,
    /// How long the echo took without TLS, or what went wrong, a clause.
    pub plain: Result<Duration, String>,
    /// The same with TLS.
    pub tls: Result<Duration, String>,
}

impl Check {
    /// Whether it can take part in anything.
    pub fn is_passed(&self) -> bool {
        self.plain.is_ok() && self.tls.is_ok()
    }
}

/// Checks one contestant. `program` is the moonwire that is one of them, `peers` what `cargo xtask
/// peers` has installed. The error is a sentence: it is not here, or nothing can be written.
pub fn check_contestant(
    contestant: &Contestant,
    program: &Path,
    peers: &Path,
) -> Result<Check, String> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("no folder for its files: {error}"))?;
    let (certificate, key) = certificate_paths(folder.path());
    let around = Surroundings {
        program: program.to_owned(),
        peers: peers.to_owned(),
        folder: folder.path().to_owned(),
        certificate,
        key,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        port: 0,
    };
    let version = contestant.version(&around)?;
    write_certificate(&around.certificate, &around.key)?;
    let try_one = |tls: bool, name: &str| echo(contestant, tls, &around, folder.path().join(name));
    Ok(Check {
        version,
        plain: try_one(false, "plain"),
        tls: try_one(true, "tls"),
    })
}

fn echo(
    contestant: &Contestant,
    tls: bool,
    around: &Surroundings,
    folder: PathBuf,
) -> Result<Duration, String> {
    let server = RunningContestant::start(contestant, tls, around, folder, &[]);
    let server = server.map_err(|error| match error {
        StartError::Files(sentence) => sentence,
        StartError::Process(error) => error.to_string(),
    })?;
    let target = Target::parse(server.url()).map_err(|error| error.to_string())?;
    let scenario = Scenario::new(Settings {
        targets: vec![target],
        connections: 1,
        workload: Workload::Echo {
            size: 64,
            binary: false,
        },
        pacing: Pacing::Closed { in_flight: 1 },
        stop: Stop::Messages(1),
        cacert: tls.then(|| around.certificate.clone()),
        same_host: true,
        ..Settings::default()
    })
    .map_err(|error| error.to_string())?;
    let mut control = Control {
        stop: Arc::new(AtomicBool::new(false)),
        on_progress: None,
    };
    let outcome = moonwire_load::run(&scenario, &mut control);
    let cell = outcome.map_err(|error| error.to_string())?.cell;
    let death = server.death(&cell);
    let is_killed = server.stop()?;
    if let Some(death) = death {
        return Err(death);
    }
    let latency = cell.latency.response.quantile_ns(1.0);
    let Some(latency_ns) = latency.filter(|_| cell.messages.lost == 0) else {
        let why = cell.errors.keys().next().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "no echo came".to_owned());
        return Err(why);
    };
    if is_killed {
        return Err("it did not end when it was asked to and was killed".to_owned());
    }
    Ok(Duration::from_nanos(latency_ns))
}
