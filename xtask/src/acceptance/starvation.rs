//! A generator that lacks CPU must say so, and one that has plenty must not.

use std::process::{Child, Stdio};

use anyhow::Result;

use super::disturbance::{self, Moment};
use super::program::{Programs, Server, pinned};
use super::table::Table;

const RUNS: usize = 20;
/// Where the server runs, and where the generator does.
const SERVER_CORE: u8 = 0;
const GENERATOR_CORE: u8 = 1;
/// Processes that do nothing but spin on the generator's core.
const SPINNERS: usize = 4;
/// The share of the machine that others may use before a run counts as disturbed.
const OUTSIDE_MAX: f64 = 0.05;
/// Disturbed runs that are repeated before we give up.
const REPEATS_MAX: usize = 20;

/// Half of what the generator could send, with a fifth of the core that it needs for that.
pub(crate) fn starved(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(Some(SERVER_CORE), &[])?;
    let ceiling = ceiling(programs, &server)?;
    let rate = (ceiling / 2.0).round();
    let spinners = Spinners::start()?;
    let mut invalid = 0;
    for _ in 0..RUNS {
        let run = open_loop(programs, &server, rate)?;
        eprintln!("   {}: {}", run.verdict(), run.reasons());
        invalid += usize::from(run.is_invalid());
    }
    drop(spinners);
    table.line(
        format!("starved: {rate:.0} msg/s of a ceiling of {ceiling:.0}, a fifth of a core"),
        format!("{invalid} of {RUNS} INVALID"),
        format!("{RUNS} of {RUNS}"),
        invalid == RUNS,
    );
    Ok(())
}

/// A fifth of what the generator could send, on a core of its own.
pub(crate) fn unhurried(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(Some(SERVER_CORE), &[])?;
    let ceiling = ceiling(programs, &server)?;
    let rate = (ceiling / 5.0).floor();
    let (mut invalid, mut counted, mut disturbed) = (0, 0, 0);
    while counted < RUNS && disturbed <= REPEATS_MAX {
        disturbance::wait_for_quiet(&server.proc(), OUTSIDE_MAX)?;
        let before = Moment::now(&server.proc())?;
        let run = open_loop(programs, &server, rate)?;
        let outside = Moment::now(&server.proc())?.outside_since(before);
        eprintln!(
            "   {} {:.1} % outside: {}",
            run.verdict(),
            100.0 * outside,
            run.reasons()
        );
        if outside > OUTSIDE_MAX {
            disturbed += 1;
            continue;
        }
        counted += 1;
        invalid += usize::from(run.is_invalid());
    }
    table.line(
        format!("unhurried: {rate:.0} msg/s of a ceiling of {ceiling:.0}"),
        format!("{invalid} of {counted} INVALID, {disturbed} disturbed from outside and repeated"),
        format!(
            "0 of {RUNS}; disturbed is over {:.0} % of the machine used by others",
            100.0 * OUTSIDE_MAX
        ),
        invalid == 0 && counted == RUNS,
    );
    Ok(())
}

/// Messages per second in a closed loop, generator and server on a core each.
fn ceiling(programs: &Programs, server: &Server) -> Result<f64> {
    let url = format!("{}/echo", server.url);
    let run = programs.load(Some(GENERATOR_CORE), &url, "-t 1 -c 50 -p 8 -d 5s")?;
    run.number("/rate/sent_per_s")
}

fn open_loop(programs: &Programs, server: &Server, rate: f64) -> Result<super::run_file::RunFile> {
    let url = format!("{}/echo", server.url);
    programs.load(
        Some(GENERATOR_CORE),
        &url,
        &format!("-t 1 -c 50 -q {rate} -d 5s"),
    )
}

/// Processes that use up the generator's core; killed when dropped.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start() -> Result<Self> {
        let mut spinners = Self(Vec::new());
        for _ in 0..SPINNERS {
            let mut command = pinned(Some(GENERATOR_CORE), "sh".as_ref());
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            spinners.0.push(command.spawn()?);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
