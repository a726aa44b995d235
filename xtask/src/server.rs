//! A server in a process of its own, that says where it listens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::place;

/// Killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Open as long as a foreign server shall run.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What it said before it listened.
    said: Vec<String>,
    /// Without a slash at its end.
    pub(crate) url: String,
}

impl Server {
    /// Returns when the server has printed `listening on URL`.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .current_dir(place::root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let stdin = child.stdin.take();
        let lines = lines(&mut child);
        let mut server = Self {
            child,
            stdin,
            lines,
            said: Vec::new(),
            url: String::new(),
        };
        while server.url.is_empty() {
            let line = server.lines.recv_timeout(START_PATIENCE);
            let line = line.with_context(|| {
                format!("{command:?} does not get ready\n{}", server.said.join("\n"))
            })?;
            if let Some((_, rest)) = line.split_once("listening on ") {
                let url = rest.split_whitespace().next().unwrap_or_default();
                server.url = url.trim_end_matches('/').to_string();
            }
            server.said.push(line);
        }
        Ok(server)
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The rest of the next line that begins so, soon after it has begun to listen.
    pub(crate) fn line(&mut self, beginning: &str) -> Result<String> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.with_context(|| format!("it does not say `{beginning}`"))?;
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.to_owned());
            }
        }
    }

    /// The folder of the process in `/proc`.
    pub(crate) fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// The numbers of /metrics of a server of ours.
    pub(crate) fn metrics(&self) -> Metrics {
        let (scheme, address) = self.url.split_once("://").unwrap_or_default();
        Metrics {
            address: address.to_owned(),
            tls: scheme == "wss",
        }
    }

    /// An error with what it said last if it has ended.
    pub(crate) fn ensure_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said: Vec<String> = self.lines.try_iter().collect();
            bail!("the server ended with {status}\n{}", said.join("\n"));
        }
        Ok(())
    }

    /// Orders a server of ours to stop, and gives all that it has said.
    pub(crate) fn stop(mut self) -> Result<Vec<String>> {
        let kill = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        kill.context("kill")?;
        self.child.wait()?;
        // Its pipes end with it.
        let rest = self.lines.iter();
        Ok(std::mem::take(&mut self.said)
            .into_iter()
            .chain(rest)
            .collect())
    }

    /// Ends a foreign server and gives the number that it prints behind `name`.
    pub(crate) fn count(mut self, name: &str) -> Result<u64> {
        self.stdin = None;
        loop {
            let line = self
                .lines
                .recv_timeout(PATIENCE)
                .with_context(|| format!("no {name}"))?;
            if let Some(rest) = line.strip_prefix(name) {
                return rest.trim().parse().with_context(|| line.clone());
            }
        }
    }
}

/// What a server of ours tells of itself.
pub(crate) struct Metrics {
    address: String,
    tls: bool,
}

impl Metrics {
    /// The sum of all series with this name and this text in their labels, now.
    pub(crate) fn sum(&self, name: &str, label: &str) -> Result<u64> {
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        let page = match self.tls {
            true => self.answer_over_tls(&head),
            false => self.answer(&head),
        };
        let page = page.context("/metrics")?;
        ensure!(page.starts_with("HTTP/1.1 200"), "/metrics answers: {page}");
        Ok(sum(&page, name, label))
    }

    fn answer(&self, head: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).context("the server is gone")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(head.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    }

    /// Whatever its certificate says: it is our own.
    fn answer_over_tls(&self, head: &str) -> Result<String> {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &self.address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("openssl, which `cargo xtask peers` installs")?;
        let mut input = client.stdin.take().context("its input")?;
        input.write_all(head.as_bytes())?;
        // It ends when the server closes, after the page; until then its input stays open.
        let output = client.wait_with_output()?;
        drop(input);
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn sum(page: &str, name: &str, label: &str) -> u64 {
    let values = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(name)?.strip_prefix('{')?;
        labels.contains(label).then(|| value.parse::<u64>().ok())?
    });
    values.sum::<u64>()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Both outputs line by line, read to their end so that the child never blocks on a pipe.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    let stdout = child
        .stdout
        .take()
        .map(|output| Box::new(output) as Box<dyn Read + Send>);
    let stderr = child
        .stderr
        .take()
        .map(|output| Box::new(output) as Box<dyn Read + Send>);
    for output in [stdout, stderr].into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
    }
    lines
}

const PATIENCE: Duration = Duration::from_secs(30);
/// A suite of others installs itself when it is first started, and says nothing meanwhile.
const START_PATIENCE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_added_up() {
        let page = "# HELP a A.\na{kind=\"x\",worker=\"0\"} 1\na{kind=\"x\",worker=\"1\"} 2\n\
                    a{kind=\"y\"} 4\nab{kind=\"x\"} 8\n";
        assert_eq!(sum(page, "a", "kind=\"x\""), 3);
        assert_eq!(sum(page, "a", ""), 7);
        assert_eq!(sum(page, "c", ""), 0);
    }
}
