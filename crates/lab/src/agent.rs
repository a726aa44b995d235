//! Contestants on another host: an agent there starts, samples and stops them for a lab here.
//!
//! The agent is no remote shell. It starts contestants that it knows by itself, from folders of its
//! own host; what comes over the wire are their names and numbers with bounds.

mod client;
mod clock;
mod remote;
mod serve;
mod session;
mod token;
mod wire;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use self::client::Agent;
pub use self::client::AgentTarget;
pub(crate) use self::clock::Estimate;
pub(crate) use self::remote::{RemoteSampler, RemoteStack};
pub use self::serve::{AgentEvent, AgentSpec, agent};
pub use self::token::Token;
pub(crate) use self::wire::{Lineup, Preparation, Prepared, Role};

/// Why an agent is not there. Displays as one sentence.
#[derive(Debug)]
pub enum AgentError {
    /// It cannot listen.
    Listen(SocketAddr, io::Error),
    /// There is no folder for the files of contestants.
    Folder(io::Error),
    /// Anybody who reaches it could use it.
    Open(SocketAddr),
    /// Nobody answers.
    Unreachable {
        /// Where it should be.
        place: String,
        /// What was found there.
        why: String,
    },
    /// It was there and said no, or could not do what was asked.
    Refused {
        /// Where it is.
        place: String,
        /// What it said.
        sentence: String,
    },
    /// It was there and is no more.
    Lost {
        /// Where it was.
        place: String,
        /// How that was seen.
        why: String,
    },
}

impl fmt::Display for AgentError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(to, "the agent cannot listen on {address}: {error}")
            }
            Self::Folder(error) => {
                write!(
                    to,
                    "there is no folder for the files of contestants: {error}"
                )
            }
            Self::Open(address) => write!(
                to,
                "an agent that listens on {address} can be reached by others: give the token that \
                 labs have to know with --token-file FILE, or listen on 127.0.0.1"
            ),
            Self::Unreachable { place, why } => write!(
                to,
                "there is no agent at {place}: {why}; start `moonwire lab agent --listen \
                 ADDR:PORT` there"
            ),
            Self::Refused { place, sentence } => write!(to, "the agent at {place}: {sentence}"),
            Self::Lost { place, why } => write!(to, "the agent at {place} is lost: {why}"),
        }
    }
}

impl std::error::Error for AgentError {}

/// How often a lab says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Who says nothing for so long is not there.
const SILENCE_MAX: Duration = Duration::from_secs(10);
