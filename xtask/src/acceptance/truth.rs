//! Faults that are known beforehand: what the generator reports must be what was done to it.

use anyhow::Result;

use super::program::Programs;
use super::table::Table;

/// Seconds; a multiple of the ten in which the server stalls once.
const STALL_RUN_S: u64 = 60;
const STALL_CONNECTIONS: u64 = 10;

/// A tenth of all messages is due while the server does nothing, evenly over its second: the 99th
/// percentile of all is then the 90th of those, 900 ms. A generator that leaves out what it could
/// not send during the stall says a millisecond.
pub(crate) fn stalls(programs: &Programs, table: &mut Table) -> Result<()> {
    for in_flight in ["", " -p 1"] {
        let server = programs.faulty(&["stall"])?;
        let arguments = format!("-c {STALL_CONNECTIONS} -q 1000 -d {STALL_RUN_S}s{in_flight}");
        let run = programs.load(None, &server.url, &arguments)?;
        let p99_ms = run.number("/latency/response/p99_us")? / 1000.0;
        table.line(
            format!("stall of 1 s in 10, `{arguments}`: response p99"),
            format!("{p99_ms:.1} ms, {}", run.verdict()),
            "900 ms within 2 %",
            (882.0..=918.0).contains(&p99_ms),
        );
        if !in_flight.is_empty() {
            let slow = run.service_above(100_000_000)?;
            let slow_max = (STALL_RUN_S / 10 + 1) * STALL_CONNECTIONS;
            table.line(
                "the same: service samples over 100 ms",
                slow.to_string(),
                format!("at most {slow_max}"),
                slow <= slow_max,
            );
        }
    }
    Ok(())
}

/// One reply in 10,000 is not as it should be, and each of them is counted, under its own name.
pub(crate) fn faults(programs: &Programs, table: &mut Table) -> Result<()> {
    for (fault, counter) in [
        ("drop", "lost"),
        ("double", "duplicate"),
        ("alter", "corrupt"),
    ] {
        let server = programs.faulty(&[fault, "10000"])?;
        let run = programs.load(None, &server.url, "-c 20 -q 5000 -d 20s --drain 3s")?;
        let counted = run.count(&format!("/messages/{counter}"))?;
        let done = server.count("spoilt")?;
        let mut others = 0;
        for other in ["lost", "duplicate", "reordered", "corrupt", "unexpected"] {
            // A reply with other content is not the reply: it may also count as lost.
            if other != counter && !(counter == "corrupt" && other == "lost") {
                others += run.count(&format!("/messages/{other}"))?;
            }
        }
        table.line(
            format!("a server that does `{fault}` to 1 reply in 10,000: {counter}"),
            format!("{counted} {counter}, {others} of other kinds"),
            format!("{done}, as the server counted; 0"),
            done > 0 && counted == done && others == 0,
        );
    }
    Ok(())
}
