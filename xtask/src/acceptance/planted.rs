//! Faults of servers that are known and rare: a leak, a loss, an order.

use anyhow::Result;

use super::program::Programs;
use super::table::Table;

/// One message in so many.
const RARE: &str = "1000000";

/// Ten minutes of load on a server that keeps 16 bytes of each message, and on one that does not;
/// then as many messages as two rare faults need.
pub(crate) fn found(programs: &Programs, seconds: u16, table: &mut Table) -> Result<()> {
    for (fault, wanted) in [(["leak", "16"].as_slice(), "leaks"), (&[], "flat")] {
        let server = programs.faulty(fault)?;
        let load = format!("-t 1 -c 100 -q 5000 -d {seconds}s");
        let run = programs.load(None, &server.url, &load)?;
        let verdict = run.text("/growth/verdict")?;
        let (bytes, low, high) = (
            run.number("/growth/bytes")?,
            run.number("/growth/bytes_low")?,
            run.number("/growth/bytes_high")?,
        );
        let name = match fault {
            [] => "memory of a server that keeps nothing",
            _ => "memory of a server that keeps 16 B of each message",
        };
        table.line(
            format!("{name}, {seconds} s of 5,000 messages/s"),
            format!("{verdict}: {bytes:.2} [{low:.2}, {high:.2}] B a message"),
            wanted,
            verdict == wanted,
        );
    }
    for (fault, pointer, what) in [
        ("drop", "/messages/lost", "replies that never come"),
        ("swap", "/messages/reordered", "replies behind the next one"),
    ] {
        let server = programs.faulty(&[fault, RARE])?;
        let run = programs.load(None, &server.url, "-t 1 -c 50 -p 20 -n 2500000")?;
        let found = run.count(pointer)?;
        let planted = server.count("spoilt")?;
        table.line(
            format!("{what}, one in {RARE} of 2,500,000"),
            format!("{found} found of {planted}"),
            "all, and no other",
            found == planted && planted > 0,
        );
    }
    Ok(())
}
