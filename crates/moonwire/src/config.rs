//! `moonwire config`: configurations of others in our words.

use std::path::PathBuf;

use anyhow::Result;
use moonwire_server::LappsHome;

use crate::exit::Exit;
use crate::output;

/// Look at configurations without serving them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the ws.json and lapps.json of an installation of LAppS as a moonwire.toml
    ///
    /// What has no effect here is said on stderr, a line each. `moonwire serve --lapps` serves the
    /// same.
    #[command(after_help = EXAMPLES)]
    Convert {
        /// Where LAppS is installed [default: $LAPPS_HOME, else /opt/lapps]
        home: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> Result<Exit> {
    let Verb::Convert { home } = &args.verb;
    // Whoever reads the result may stand in another folder.
    let home = home.as_deref().map(std::path::absolute).transpose()?;
    let conversion = LappsHome::find(home.as_deref()).convert()?;
    for remark in &conversion.remarks {
        output::remark(remark);
    }
    output::answer(&conversion.toml)?;
    Ok(Exit::Success)
}

const EXAMPLES: &str = "Examples:
  moonwire config convert /opt/lapps > moonwire.toml";
