//! Why a server does not start.

use std::net::SocketAddr;
use std::{error, fmt, io};

use moonwire_lua::ScriptError;

use crate::config::ConfigError;

/// Why a server does not start, or ended in another way than by an order.
#[derive(Debug)]
pub enum ServerError {
    /// The configuration cannot be used.
    Config(ConfigError),
    /// An address cannot be listened on.
    Listen {
        /// The address as it was asked for.
        addr: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// A service cannot be loaded, or its `onStart` failed.
    Script(ScriptError),
    /// The system refused something that a worker needs.
    Worker(io::Error),
    /// The driver that was asked for cannot be had.
    Driver {
        /// Its name.
        driver: &'static str,
        /// Why.
        error: io::Error,
    },
    /// A worker ended by a panic: a defect of the server itself. The others were stopped.
    Panicked {
        /// Which one.
        worker: usize,
    },
    /// The certificate or the key cannot be used.
    Tls(String),
}

impl ServerError {
    /// Whether the user's configuration or script has to change, as opposed to the state of the
    /// machine.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Config(_) | Self::Script(_) | Self::Tls(_) => true,
            Self::Listen { .. } | Self::Worker(_) | Self::Driver { .. } | Self::Panicked { .. } => {
                false
            }
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen { addr, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "another program listens on {addr}; stop it or choose another address"
                )
            }
            Self::Listen { addr, error } => write!(f, "cannot listen on {addr}: {error}"),
            // The calls that led there are in the error; the place is in its text.
            Self::Script(error) => error.fmt(f),
            Self::Worker(error) => write!(f, "a worker cannot start: {error}"),
            Self::Driver { driver, error } => write!(
                f,
                "{driver} cannot be had: {error}; driver = \"auto\" takes epoll where that is so"
            ),
            Self::Panicked { worker } => {
                write!(f, "worker {worker} ended by a defect of the server")
            }
            Self::Tls(sentence) => f.write_str(sentence),
        }
    }
}

impl error::Error for ServerError {}

impl From<ConfigError> for ServerError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ScriptError> for ServerError {
    fn from(error: ScriptError) -> Self {
        Self::Script(error)
    }
}
