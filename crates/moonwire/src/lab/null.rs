//! `moonwire lab null-server`: what the generator is measured against.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use moonwire_load::{DriverChoice, NullServer, null_server, quantity, raw_echo};

use super::place;
use crate::choice;
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
    /// How it asks the kernel for its sockets: epoll, io_uring or auto
    #[arg(long, value_name = "NAME", env = "MOONWIRE_DRIVER", default_value = "epoll",
          hide_possible_values = true,
          value_parser = choice::driver())]
    driver: DriverChoice,
    /// Give back the bytes that come without a look at them, for a generator with --no-mask: the
    /// floor of any server
    #[arg(long, conflicts_with_all = ["cert", "replies"])]
    raw: bool,
}

/// Serves until it is interrupted.
pub(super) fn run(args: &NullServerArgs) -> Result<Exit> {
    let server = NullServer {
        listen: args.listen,
        tls: args.cert.clone().zip(args.key.clone()),
        replies: args.replies,
        driver: args.driver,
    };
    let stop = signals::stop_on_interrupt()?;
    let scheme = if server.tls.is_some() { "wss" } else { "ws" };
    let mut on_listening = |address| {
        // Whoever does not read this does not need it.
        let _ = writeln!(std::io::stdout(), "listening on {scheme}://{address}");
    };
    if args.raw {
        raw_echo(args.listen, args.driver, &stop, &mut on_listening)?;
    } else {
        null_server(&server, &stop, &mut on_listening)?;
    }
    Ok(Exit::Success)
}
