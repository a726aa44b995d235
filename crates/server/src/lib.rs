//! The application server: workers, each with its own driver, listeners and Lua instances.
//!
//! A message and a service meet only in this crate's worker; a socket and a frame never do. A
//! connection is accepted by any worker; its request names a service, and a worker without an
//! instance of that service hands the connection to one that has. From then on nothing that
//! happens to the connection crosses a thread.

mod acl;
mod background;
mod cidr;
mod config;
mod error;
mod event;
mod handler;
mod mailbox;
mod metrics;
mod origin;
mod outgoing;
mod process;
mod round_trips;
mod router;
mod server;
mod shared;
mod shipped;
mod sources;
mod stats;
mod steps;
mod worker;

// The public interface is:
pub use acl::{Acl, AclPolicy};
pub use cidr::Cidr;
pub use config::{
    Builtin, Config, ConfigError, Execution, LappsConversion, LappsHome, Limits, LogFormat,
    OnBrokenService, OutgoingTls, Overrides, QueuePolicy, Service, StandaloneService, Tls,
    check_log_filter,
};
pub use error::ServerError;
pub use moonwire_net::{DriverChoice, TlsRecords};
pub use origin::AllowedOrigins;
pub use server::{Server, Stopper};
