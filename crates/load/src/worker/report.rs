//! What workers tell, and what they share with the thread that started them.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::block_records::BlockRecords;
use crate::cpu::ThreadCpu;
use crate::stage_records::StageRecords;
use crate::tally::Tally;

/// What workers and the thread that started them share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// When sending starts; [`crate::schedule::NEVER`] until every connection is up or given up.
    pub(crate) start_ns: AtomicU64,
    /// The run is to end now.
    pub(crate) stop: AtomicBool,
    /// Handshakes that may still be started.
    pub(crate) handshakes: AtomicUsize,
    /// Connections that are up.
    pub(crate) online: AtomicU64,
    /// Connections that came up.
    pub(crate) made: AtomicU64,
}

/// What a worker tells.
#[derive(Debug)]
pub(crate) enum Report {
    /// Every own connection is up or given up.
    Settled { online: u64 },
    /// What was recorded in `seconds` of the run: one, or more after a delay.
    Snapshot {
        worker: u32,
        seconds: RangeInclusive<u64>,
        tally: Box<Tally>,
        run_ns: u64,
    },
    /// The worker went on to the next phase.
    Entered { worker: u32, stage: Stage },
    /// The worker has ended; nothing follows from it.
    Finished { worker: u32, result: Box<Finish> },
    /// The worker cannot go on.
    Broken { sentence: String },
}

/// What a worker leaves behind.
#[derive(Debug)]
pub(crate) struct Finish {
    pub(crate) tally: Box<Tally>,
    /// The seconds of the run that the tally is of.
    pub(crate) seconds: RangeInclusive<u64>,
    /// CPU over the sending phase, and how long that was; `None` if it never began.
    pub(crate) cpu: Option<(ThreadCpu, u64)>,
    /// Messages due and never sent, because of the peer.
    pub(crate) unsent_waiting: u64,
    /// Those among them whose connection was not up.
    pub(crate) unsent_down: u64,
    /// Messages due and never sent, though nothing was in their way.
    pub(crate) unsent_ready: u64,
    /// When sending ended; 0 if it never began.
    pub(crate) sending_end_ns: u64,
    /// When the last message was sent; 0 if none was.
    pub(crate) last_sent_ns: u64,
    /// When the last reply came; 0 if none did.
    pub(crate) last_received_ns: u64,
    /// The least and the most messages that one of its connections sent, where each may send as
    /// long as it likes.
    pub(crate) sent_each: Option<(u64, u64)>,
    /// Messages that each of its listeners has heard, where some are published.
    pub(crate) heard: Vec<u64>,
    /// Response times in blocks of time.
    pub(crate) blocks: BlockRecords,
    /// What became of the messages of each stage, where there are stages.
    pub(crate) stages: StageRecords,
    /// When no connection was left, if that ended it.
    pub(crate) died_ns: Option<u64>,
    /// No reply came for so long that sending was given up.
    pub(crate) stalled: bool,
}

/// The phases of a worker, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Connections come up; the start is not known yet.
    Waiting,
    /// Messages are due.
    Sending,
    /// Replies are awaited.
    Draining,
    /// Close handshakes.
    Closing,
    /// Nothing is left.
    Done,
}
