//! The client under test: a process for each case, that echoes until the suite closes.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// `moonwire load --echo`.
pub(crate) struct Client {
    program: PathBuf,
    tls: bool,
}

impl Client {
    pub(crate) fn new(program: &Path, tls: bool) -> Self {
        Self {
            program: program.into(),
            tls,
        }
    }

    /// Cases 1 to `cases` of the fuzzing server at `url`, `jobs` at a time.
    pub(crate) fn run(&self, url: &str, cases: usize, jobs: usize) -> Result<()> {
        let begin = Instant::now();
        let next = AtomicUsize::new(1);
        let work = || -> Result<()> {
            loop {
                let case = next.fetch_add(1, Ordering::Relaxed);
                if case > cases {
                    return Ok(());
                }
                let outcome = self.case(&format!("{url}/runCase?case={case}&agent=moonwire"));
                if let Err(error) = outcome {
                    // The others need not go on for that.
                    next.store(cases + 1, Ordering::Relaxed);
                    return Err(error.context(format!("case {case} of {cases}")));
                }
                if case.is_multiple_of(CASES_PER_LINE) {
                    println!(
                        "{case:5} of {cases} cases  {:6.1} s",
                        begin.elapsed().as_secs_f64()
                    );
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
    fn case(&self, url: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["load", "--echo", url, "--deflate"]);
        command.args(self.tls.then_some("--insecure"));
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

    #[test]
    fn a_client_that_cannot_run_ends_the_round() {
        let client = Client::new(Path::new("/nonexistent"), false);
        let error = format!("{:#}", client.run("ws://a", 3, 2).unwrap_err());
        assert!(error.contains("cannot run"), "{error}");
    }

    #[test]
    fn the_exit_code_is_no_verdict() {
        // `false` ends with 1 and ignores its arguments.
        assert!(Client::new(Path::new("false"), true).case("ws://a").is_ok());
    }
}
