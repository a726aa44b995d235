//! Messages of the user's own: made before the load, so that they cost nothing while it runs.
//!
//! A program is started once. It reads one line, `SIZE text|binary COUNT SEED`, from its standard
//! input, and writes COUNT messages or fewer to its standard output, each behind its length in four
//! bytes, the highest first.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::scenario::SIZE_MAX;

/// Where the messages come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PayloadSource {
    /// A program, as the shell takes it.
    Command(String),
    /// A file, which is one message.
    File(PathBuf),
    /// A file with a message in each line.
    Lines(PathBuf),
}

/// What messages are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) size: usize,
    pub(crate) is_binary: bool,
    pub(crate) seed: u64,
}

impl Wanted {
    /// Messages that a program is to make: as many as fit, so that few are sent twice.
    fn count(self) -> usize {
        (POOL_BYTES_MAX / self.size.max(1)).clamp(1, POOL_MESSAGES_MAX)
    }
}

/// The messages, at least one; the error is one sentence. A program ends once `stop` is set.
pub(crate) fn fill(
    source: &PayloadSource,
    wanted: Wanted,
    stop: &AtomicBool,
) -> Result<Vec<Vec<u8>>, String> {
    let (what, pool) = match source {
        PayloadSource::Command(command) => {
            let what = format!("the payload command `{command}`");
            let output = run(command, wanted, stop).map_err(|why| format!("{what} {why}"))?;
            let pool = parse(&output, wanted.count()).map_err(|why| format!("{what} {why}"))?;
            (what, pool)
        }
        PayloadSource::File(path) => (format!("{}", path.display()), vec![read(path)?]),
        PayloadSource::Lines(path) => {
            let text = read(path)?;
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            let lines = text.split(|&byte| byte == b'\n');
            let line = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).to_vec();
            (format!("{}", path.display()), lines.map(line).collect())
        }
    };
    check(&pool, wanted.is_binary).map_err(|why| format!("{what} {why}"))?;
    Ok(pool)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |why: &dyn std::fmt::Display| {
        format!("the payload file {} cannot be read: {why}", path.display())
    };
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    let mut file = file.take(POOL_BYTES_MAX as u64 + 1);
    file.read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    if bytes.len() > POOL_BYTES_MAX {
        return Err(unreadable(&format!(
            "it has more than {POOL_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

/// Whether these can be sent.
fn check(pool: &[Vec<u8>], is_binary: bool) -> Result<(), String> {
    if pool.is_empty() {
        return Err("gave no message; at least 1 is needed".to_owned());
    }
    for (message, number) in pool.iter().zip(1..) {
        if message.len() > SIZE_MAX {
            return Err(format!(
                "gave a message of {} bytes as number {number}; at most {SIZE_MAX} can be sent",
                message.len()
            ));
        }
        if !is_binary && std::str::from_utf8(message).is_err() {
            return Err(format!(
                "gave a text that is not UTF-8 as number {number}; binary messages take any bytes"
            ));
        }
    }
    Ok(())
}

/// Takes the output of a program apart.
fn parse(output: &[u8], count: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut rest = output;
    let mut pool = Vec::new();
    while !rest.is_empty() {
        let message = rest
            .split_first_chunk::<LENGTH_BYTES>()
            .and_then(|(length, after)| {
                let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
                after.split_at_checked(length)
            });
        let Some((message, after)) = message else {
            return Err(format!(
                "ended within message {}; each is its length in {LENGTH_BYTES} bytes, the highest \
                 first, and then so many bytes",
                pool.len() + 1
            ));
        };
        if pool.len() == count {
            return Err(format!(
                "gave more than the {count} messages it was asked for"
            ));
        }
        pool.push(message.to_vec());
        rest = after;
    }
    Ok(pool)
}

/// Runs the program to its end; gives what it wrote.
fn run(command: &str, wanted: Wanted, stop: &AtomicBool) -> Result<Vec<u8>, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // So that it can be ended with all that it started.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    let kind = if wanted.is_binary { "binary" } else { "text" };
    let (size, count, seed) = (wanted.size, wanted.count(), wanted.seed);
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not care closes it, which is its right.
        let _ = writeln!(stdin, "{size} {kind} {count} {seed}");
    }
    let output = reader(child.stdout.take(), OUTPUT_BYTES_MAX);
    let complaints = reader(child.stderr.take(), COMPLAINT_BYTES_MAX);
    let until = Until { deadline, stop };
    let ended = until
        .some(|| output.try_recv().ok())
        .and_then(|output| Ok((output, until.some(|| child.try_wait().ok().flatten())?)));
    let (output, status) = match ended {
        Ok(ended) => ended,
        Err(why) => {
            end(&mut child);
            return Err(why);
        }
    };
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(format!("gave more than {POOL_BYTES_MAX} bytes in all"));
    }
    if !status.success() {
        let said = until.some(|| complaints.try_recv().ok());
        let said = said.unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().next_back().unwrap_or_default();
        return Err(format!("failed ({status}): {}", last.escape_debug()));
    }
    Ok(output)
}

/// Reads a stream to its end on a thread of its own, and keeps one byte more than `bytes_max`.
fn reader(stream: Option<impl Read + Send + 'static>, bytes_max: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let mut stream = stream.take(bytes_max + 1);
            // What came before an error is judged as it is.
            let _ = stream.read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream.into_inner(), &mut std::io::sink());
        }
        let _ = sender.send(bytes);
    });
    receiver
}

/// How long a program is waited for.
struct Until<'a> {
    deadline: Instant,
    stop: &'a AtomicBool,
}

impl Until<'_> {
    /// Asks until there is an answer; the error is a clause that says why there will be none.
    fn some<T>(&self, mut ask: impl FnMut() -> Option<T>) -> Result<T, String> {
        loop {
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if self.stop.load(Ordering::Acquire) {
                return Err("was interrupted, so that nothing was sent".to_owned());
            }
            if Instant::now() >= self.deadline {
                return Err(format!("took longer than {COMMAND_TIME_MAX:?}"));
            }
            // Neither a child nor a flag can be waited for with a timeout.
            thread::sleep(POLL);
        }
    }
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It has ended by itself where this fails.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Bytes of all messages together.
const POOL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Messages that a program is asked for.
const POOL_MESSAGES_MAX: usize = 1000;
const LENGTH_BYTES: usize = 4;
/// The messages with their lengths.
const OUTPUT_BYTES_MAX: u64 = (POOL_BYTES_MAX + POOL_MESSAGES_MAX * LENGTH_BYTES) as u64;
/// Of what a program complains of, the last line is told.
const COMPLAINT_BYTES_MAX: u64 = 64 * 1024;
/// How long a program may take.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(size: usize, is_binary: bool) -> Wanted {
        Wanted {
            size,
            is_binary,
            seed: 7,
        }
    }

    fn command(command: &str, is_binary: bool) -> Result<Vec<Vec<u8>>, String> {
        fill(
            &PayloadSource::Command(command.to_owned()),
            wanted(3, is_binary),
            &AtomicBool::new(false),
        )
    }

    #[test]
    fn a_program_is_told_what_is_wanted() {
        // It answers with its line, as one message of 14 bytes.
        let pool = command(r"printf '\000\000\000\016'; cat", false).unwrap();
        assert_eq!(pool, [b"3 text 1000 7\n".to_vec()]);
    }

    #[test]
    fn messages_follow_their_lengths() {
        let pool = command(r"printf '\000\000\000\002hi\000\000\000\000'", true).unwrap();
        assert_eq!(pool, [b"hi".to_vec(), Vec::new()]);
    }

    #[test]
    fn a_bad_program_has_its_sentence() {
        for (text, part) in [
            (r"printf '\000\000\000\005hi'", "ended within message 1"),
            (r"printf '\000\000'", "ended within message 1"),
            (r"printf '\000\000\000\001\377'", "not UTF-8 as number 1"),
            ("true", "gave no message"),
            ("echo oh no >&2; exit 3", "exit status: 3): oh no"),
            ("no-such-program-at-all", "not found"),
        ] {
            let sentence = command(text, false).unwrap_err();
            assert!(sentence.contains(part), "{text}: {sentence}");
            assert_eq!(sentence.lines().count(), 1);
        }
    }

    #[test]
    fn no_more_is_taken_than_was_asked_for() {
        let two = b"\0\0\0\x01a\0\0\0\x01b";
        assert_eq!(parse(two, 2).unwrap().len(), 2);
        assert!(parse(two, 1).unwrap_err().contains("more than the 1"));
        assert_eq!(wanted(0, true).count(), 1000);
        assert_eq!(wanted(1 << 20, true).count(), 64);
        assert_eq!(wanted(1 << 30, true).count(), 1);
    }

    #[test]
    fn a_file_is_one_message_or_one_per_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("messages");
        std::fs::write(&path, "one\r\n\ntwo\n").unwrap();
        let fill = |source| fill(&source, wanted(3, false), &AtomicBool::new(false));
        let lines = fill(PayloadSource::Lines(path.clone())).unwrap();
        assert_eq!(lines, [b"one".to_vec(), Vec::new(), b"two".to_vec()]);
        let whole = fill(PayloadSource::File(path.clone())).unwrap();
        assert_eq!(whole, [b"one\r\n\ntwo\n".to_vec()]);
        std::fs::remove_file(&path).unwrap();
        let sentence = fill(PayloadSource::File(path)).unwrap_err();
        assert!(sentence.contains("messages cannot be read"), "{sentence}");
    }
}
