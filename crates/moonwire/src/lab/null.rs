//! `moonwire lab null-server`: what the generator is measured against.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use moonwire_load::{NullServer, null_server, quantity};

use super::place;
use crate::exit::Exit;
use crate::signals;

/// Where the null server listens.
#[derive(Debug, Args)]
pub(super) struct NullServerArgs {
    /// Address and port; port 0 is a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0",
          value_parser = place)]
    listen: SocketAddr,
    /// Certificate in PEM; with it everything is over TLS
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Replies to each message on /amplify
    #[arg(long, value_name = "N", default_value = "4", value_parser = quantity::count_u32)]
    replies: u32,
}

/// Serves until it is interrupted.
pub(super) fn run(args: &NullServerArgs) -> Result<Exit> {
    let server = NullServer {
        listen: args.listen,
        tls: args.cert.clone().zip(args.key.clone()),
        replies: args.replies,
    };
    let stop = signals::stop_on_interrupt()?;
    null_server(&server, &stop, &mut |address| {
        // Whoever does not read this does not need it.
        let _ = writeln!(std::io::stdout(), "listening on {address}");
    })?;
    Ok(Exit::Success)
}
