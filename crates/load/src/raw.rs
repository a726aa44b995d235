//! One line per reply, streamed to a file by a thread of its own.
//!
//! The columns are those of uwebsocket-benchmark, in microseconds. Workers hand over blocks of
//! lines through a bounded queue; when the disk is too slow the lines are dropped and counted,
//! because a worker that waits for a disk measures the disk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

/// One reply. All times are microseconds since the epoch, or of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawLine {
    /// When the reply arrived.
    pub(crate) timestamp_us: i64,
    pub(crate) client_id: u32,
    pub(crate) msg_id: u64,
    /// `None` when the reply carries no clock of the server, as an echo.
    pub(crate) server_created_at_us: Option<i64>,
    pub(crate) client_created_at_us: i64,
}

impl RawLine {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self {
            timestamp_us,
            client_id,
            msg_id,
            server_created_at_us,
            client_created_at_us,
        } = self;
        match server_created_at_us {
            Some(server) => writeln!(
                out,
                "{timestamp_us},{client_id},{msg_id},{server},{client_created_at_us},{},{}",
                timestamp_us.saturating_sub(*server),
                server.saturating_sub(*client_created_at_us)
            ),
            // Nothing splits the round trip: all of it is the client's.
            None => writeln!(
                out,
                "{timestamp_us},{client_id},{msg_id},,{client_created_at_us},{},",
                timestamp_us - client_created_at_us
            ),
        }
    }
}

/// The file and the thread that writes it.
#[derive(Debug)]
pub(crate) struct RawFile {
    sender: SyncSender<Vec<RawLine>>,
    writer: JoinHandle<io::Result<()>>,
}

impl RawFile {
    /// Creates the file and writes its header.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(FILE_BUFFER_BYTES, File::create(path)?);
        file.write_all(HEADER.as_bytes())?;
        let (sender, blocks) = sync_channel(BLOCKS_MAX);
        let writer = thread::Builder::new()
            .name("moonwire-csv".to_owned())
            .spawn(move || write_blocks(file, &blocks))?;
        Ok(Self { sender, writer })
    }

    /// The end that a worker writes to.
    pub(crate) fn sink(&self) -> RawSink {
        RawSink {
            block: Vec::with_capacity(BLOCK_LINES),
            sender: self.sender.clone(),
        }
    }

    /// Waits until everything that the sinks handed over is in the file.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.sender);
        self.writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

/// Collects the lines of one worker.
#[derive(Debug)]
pub(crate) struct RawSink {
    /// Invariant: at most [`BLOCK_LINES`].
    block: Vec<RawLine>,
    sender: SyncSender<Vec<RawLine>>,
}

impl RawSink {
    /// Takes a line; returns how many lines had to be dropped for it.
    pub(crate) fn push(&mut self, line: RawLine) -> u64 {
        self.block.push(line);
        if self.block.len() < BLOCK_LINES {
            return 0;
        }
        self.flush()
    }

    /// Hands over what was collected; returns how many lines had to be dropped.
    pub(crate) fn flush(&mut self) -> u64 {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_LINES));
        match self.sender.try_send(block) {
            Ok(()) => 0,
            Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) => {
                block.len() as u64
            }
        }
    }
}

fn write_blocks(mut file: BufWriter<File>, blocks: &Receiver<Vec<RawLine>>) -> io::Result<()> {
    for block in blocks {
        for line in block {
            line.write(&mut file)?;
        }
    }
    file.flush()
}

const HEADER: &str = "timestamp,client_id,msg_id,server_created_at,client_created_at,\
     client_latency,server_latency\n";
/// Lines handed over at once: 160 KiB.
const BLOCK_LINES: usize = 4096;
/// Blocks that may wait: 40 MiB, or two seconds of half a million replies per second.
const BLOCKS_MAX: usize = 256;
const FILE_BUFFER_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_columns_of_the_seed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.csv");
        let file = RawFile::create(&path).unwrap();
        let mut sink = file.sink();
        let line = RawLine {
            timestamp_us: 1_000_300,
            client_id: 7,
            msg_id: 9,
            server_created_at_us: Some(1_000_100),
            client_created_at_us: 1_000_000,
        };
        assert_eq!(sink.push(line), 0);
        assert_eq!(
            sink.push(RawLine {
                server_created_at_us: None,
                ..line
            }),
            0
        );
        assert_eq!(sink.flush(), 0);
        drop(sink);
        file.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], HEADER.trim_end());
        assert_eq!(lines[1], "1000300,7,9,1000100,1000000,200,100");
        assert_eq!(lines[2], "1000300,7,9,,1000000,300,");
    }

    #[test]
    fn a_slow_disk_drops_lines_and_says_how_many() {
        let (sender, blocks) = sync_channel(1);
        let mut sink = RawSink {
            block: Vec::new(),
            sender,
        };
        let mut dropped = 0;
        for _ in 0..3 * BLOCK_LINES {
            dropped += sink.push(RawLine::default());
        }
        assert_eq!(dropped, 2 * BLOCK_LINES as u64);
        assert_eq!(blocks.recv().unwrap().len(), BLOCK_LINES);
    }
}
