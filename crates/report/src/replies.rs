//! The per-reply CSV of uwebsocket-benchmark, in microseconds, streamed: nothing is kept in memory.

use std::io::{self, Write};

use serde::Serialize;

/// One reply: a row. Times are microseconds since the epoch, latencies microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reply {
    /// When the client received the reply.
    pub timestamp: u64,
    /// Index of the connection.
    pub client_id: u64,
    /// Number of the message within its connection.
    pub msg_id: u64,
    /// When the server made the reply.
    pub server_created_at: u64,
    /// When the client made the message.
    pub client_created_at: u64,
    /// Server to client; negative when the clocks disagree.
    pub client_latency: i64,
    /// Client to server; negative when the clocks disagree.
    pub server_latency: i64,
}

/// Writes replies as they come.
#[derive(Debug)]
pub struct ReplyWriter<W: Write> {
    csv: csv::Writer<W>,
}

impl<W: Write> ReplyWriter<W> {
    /// Over any writer; the header is written with the first row, or by `finish`.
    pub fn new(writer: W) -> Self {
        let csv = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(writer);
        let mut replies = Self { csv };
        // Into the writer's own buffer, which is empty: nothing can fail yet, and if it could the
        // next row would fail again.
        let _ = replies.csv.write_record(COLUMNS);
        replies
    }

    /// Appends one row.
    pub fn write(&mut self, reply: &Reply) -> io::Result<()> {
        self.csv.serialize(reply).map_err(io::Error::from)
    }

    /// Flushes and gives the writer back.
    pub fn finish(self) -> io::Result<W> {
        self.csv
            .into_inner()
            .map_err(|error| io::Error::from(error.error().kind()))
    }
}

const COLUMNS: [&str; 7] = [
    "timestamp",
    "client_id",
    "msg_id",
    "server_created_at",
    "client_created_at",
    "client_latency",
    "server_latency",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_seven_columns_of_seed_001() {
        let mut replies = ReplyWriter::new(Vec::new());
        let reply = Reply {
            timestamp: 1_700_000_000_040_000,
            client_id: 7,
            msg_id: 3,
            server_created_at: 1_700_000_000_020_100,
            client_created_at: 1_700_000_000_000_000,
            client_latency: 19_900,
            server_latency: 20_100,
        };
        replies.write(&reply).unwrap();
        let text = String::from_utf8(replies.finish().unwrap()).unwrap();
        assert_eq!(
            text,
            "timestamp,client_id,msg_id,server_created_at,client_created_at,client_latency,\
             server_latency\n1700000000040000,7,3,1700000000020100,1700000000000000,19900,20100\n"
        );
    }

    #[test]
    fn an_empty_file_still_has_its_header() {
        let text = ReplyWriter::new(Vec::new()).finish().unwrap();
        assert!(text.starts_with(b"timestamp,client_id,"));
    }
}
