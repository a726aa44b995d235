//! The client under test: a process for each case, that echoes until the suite closes.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::settings::Round;

/// `moonwire load --echo`.
pub(crate) struct Client {
    program: PathBuf,
    round: Round,
}

impl Client {
    pub(crate) fn new(program: &Path, round: Round) -> Self {
        Self {
            program: program.into(),
            round,
        }
    }

    /// The cases that the fuzzing server at `url` has, in its order, `jobs` at a time.
    pub(crate) fn run(&self, url: &str, cases: &[String], jobs: usize) -> Result<()> {
        let begin = Instant::now();
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(index) else {
                    return Ok(());
                };
                let number = index + 1;
                let url = format!("{url}/runCase?case={number}&agent=moonwire");
                if let Err(error) = self.case(&url, offer(case)) {
                    // The others need not go on for that.
                    next.store(cases.len(), Ordering::Relaxed);
                    return Err(error.context(format!("case {case}")));
                }
                if number.is_multiple_of(CASES_PER_LINE) {
                    let seconds = begin.elapsed().as_secs_f64();
                    println!("{number:5} of {} cases  {seconds:6.1} s", cases.len());
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    }

    /// One case. The suite says how well the client did: its exit code only says whether it ran.
    fn case(&self, url: &str, offer: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["load", "--echo", url, offer]);
        command.args(self.round.tls.then_some("--insecure"));
        command.args(["--driver", self.round.driver.name()]);
        command.args(["--tls-records", self.round.driver.tls_records()]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let deadline = Instant::now() + CASE_TIME_MAX;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("the client does not end: {command:?}");
            }
            thread::sleep(POLL);
        };
        let complaint = child.stderr.take().map(std::io::read_to_string);
        let complaint = complaint.transpose()?.unwrap_or_default();
        ensure!(
            has_run(status),
            "{command:?} ended with {status}\n{complaint}"
        );
        Ok(())
    }
}

/// What a client of this case offers. Of the suite's servers some compress only with a client that
/// may be asked to forget, others are a better test of one that remembers.
fn offer(case: &str) -> &'static str {
    let forgets = ["13.2.", "13.5.", "13.6.", "13.7."];
    if forgets.iter().any(|section| case.starts_with(section)) {
        "--deflate=client_no_context_takeover; client_max_window_bits"
    } else {
        "--deflate"
    }
}

/// Not so when a signal ended it, it panicked, or it could not make sense of its arguments.
fn has_run(status: ExitStatus) -> bool {
    !matches!(status.code(), None | Some(2 | 101 | 104))
}

/// The suite gives itself 480 s for the longest of its cases.
const CASE_TIME_MAX: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);
const CASES_PER_LINE: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autobahn::settings::{Driver, Role};

    fn round(tls: bool) -> Round {
        Round {
            role: Role::Client,
            tls,
            driver: Driver::Epoll,
        }
    }

    #[test]
    fn a_client_that_cannot_run_ends_the_round() {
        let client = Client::new(Path::new("/nonexistent"), round(false));
        let cases = ["1.1.1", "1.1.2", "1.1.3"].map(String::from);
        let error = format!("{:#}", client.run("ws://a", &cases, 2).unwrap_err());
        assert!(error.contains("cannot run"), "{error}");
    }

    #[test]
    fn the_exit_code_is_no_verdict() {
        // `false` ends with 1 and ignores its arguments.
        let client = Client::new(Path::new("false"), round(true));
        assert!(client.case("ws://a", "--deflate").is_ok());
    }
}
