//! Clients of the LAppS protocol that nobody here wrote: their CBOR, their WebSockets.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::program::Programs;
use super::table::Table;
use crate::server::Server;
use crate::{peers, place};

/// One notification a second: from the first to the last of them it is a minute and a second, of
/// which some is lost when a busy machine notices the first one late.
const NOTIFICATIONS: u64 = 62;
const SECONDS_MIN: f64 = 60.0;

/// A client in Python, and the page of echo_lapps in Chromium, one after the other.
pub(crate) fn foreign(programs: &Programs, table: &mut Table) -> Result<()> {
    peers::install()?;
    let server = programs.serve(None, &["--config", "apps/echo_lapps/moonwire.toml"])?;
    let folder = place::root().join("crates/moonwire/tests/peers");
    let mut python = Command::new(peers::python()?);
    python.arg(folder.join("lapps_client.py"));
    let mut page = peers::node()?;
    page.arg(folder.join("lapps_page.js"));
    let file = place::root().join("apps/echo_lapps/index.html");
    minute(
        "cbor2 over websockets in Python",
        &server,
        python,
        None,
        table,
    )?;
    let file = file.to_str().context("the workspace is not UTF-8")?;
    minute("cbor-js in Chromium", &server, page, Some(file), table)?;
    // A browser that is told to end may do so without a close frame, which counts as lost.
    let metrics = server.metrics();
    let all = metrics.sum("moonwire_failures_total", "")?;
    let failures = all - metrics.sum("moonwire_failures_total", "kind=\"lost\"")?;
    table.line(
        "failures that the server counted",
        failures.to_string(),
        "0",
        failures == 0,
    );
    Ok(())
}

/// Runs a client, which ends with an error unless all that comes is as it must be.
fn minute(
    name: &str,
    server: &Server,
    mut client: Command,
    file: Option<&str>,
    table: &mut Table,
) -> Result<()> {
    client.arg(format!("{}/echo_lapps", server.url)).args(file);
    client.arg(NOTIFICATIONS.to_string()).stdin(Stdio::null());
    let output = client.output().with_context(|| format!("{client:?}"))?;
    ensure!(
        output.status.success(),
        "{name} failed:\n{}",
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
    );
    let counts: Value = serde_json::from_slice(&output.stdout).context("what it counted")?;
    let count = |key: &str| counts[key].as_u64().context("a count is missing");
    let (requests, heard) = (count("requests")?, count("heard")?);
    let seconds = counts["seconds"].as_f64().context("no seconds")?;
    table.line(
        name,
        format!(
            "{requests} requests answered, {} notifications sent, {heard} heard in {seconds} s",
            count("notifications")?
        ),
        "60 s, no error",
        requests > NOTIFICATIONS && heard >= NOTIFICATIONS && seconds >= SECONDS_MIN,
    );
    Ok(())
}
