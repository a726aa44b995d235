//! `moonwire bench`: the latency suite and its report.

mod args;
mod watch;

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use moonwire_lab::{BenchEnding, BenchOutcome, BenchSpec, bench};
use moonwire_report::{Style, Verdict, objection, summary};

pub(crate) use self::args::BenchArgs;
use self::watch::Watch;
use crate::exit::Exit;
use crate::load::{check_batches, seed_default, time_unit, write_json};
use crate::output;
use crate::signals;

/// Runs the sweep, prints its tables and says where the report is.
pub(crate) fn run(args: BenchArgs) -> Result<Exit> {
    let spec = spec(&args)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let stop = signals::stop_on_interrupt()?;
    let mut watch = Watch::new(args.quiet);
    let result = bench(&spec, &stop, &mut watch);
    watch.finish();
    let outcome = result?;
    let json = args.json.as_ref();
    let json = json.map_or(Ok(()), |path| write_json(&outcome.run, path));
    let json_on_stdout = args.json.as_deref() == Some(Path::new("-"));
    let mut said = Ok(());
    if !args.quiet && !json_on_stdout {
        let style = Style {
            color: output::colour(),
        };
        let tables = summary(&outcome.run, style);
        let end = match &outcome.page {
            Some(page) => format!("report: {}", page.display()),
            None => "no cell was measured".to_owned(),
        };
        said = output::answer(&format!("{}\n\n{end}", tables.trim_end()));
    } else {
        objection(&outcome.run)
            .iter()
            .for_each(|line| output::complain(line));
    }
    Ok(output::exit_after(exit_of(&outcome), [said, json]))
}

/// One cell that can be believed makes a bench worth its time.
fn exit_of(outcome: &BenchOutcome) -> Exit {
    let believed = |cell: &moonwire_report::Cell| cell.assessment.verdict() != Verdict::Invalid;
    match outcome.ending {
        BenchEnding::Interrupted => Exit::Interrupted,
        BenchEnding::Completed if outcome.run.cells().iter().any(believed) => Exit::Success,
        BenchEnding::Completed => Exit::Invalid,
    }
}

fn spec(args: &BenchArgs) -> Result<BenchSpec> {
    for wait in &args.wait {
        check_batches(args.batches, *wait)?;
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let link_delay = match args.link_delay {
        Some(delay) => delay,
        // A server that somebody else placed has the link that it has.
        None if args.url.is_some() => std::time::Duration::ZERO,
        None => BenchSpec::new(program.clone()).link_delay,
    };
    Ok(BenchSpec {
        name: args.name.clone(),
        url: args.url.clone(),
        clients: narrow(&args.clients, "--clients")?,
        batch: narrow(&args.batch, "--batch")?,
        wait: args.wait.clone(),
        stagger: args.stagger,
        message_size: args.message_size.clone(),
        batches: args.batches,
        replies: u16::try_from(args.replies)
            .map_err(|_| anyhow!("--replies is at most {}", u16::MAX))?,
        link_delay,
        link_jitter: args.link_jitter,
        link_loss: args.link_loss,
        link_rate_bit_per_s: args.link_rate,
        link_queue_bytes: args.link_queue,
        drain: args.drain,
        time_unit: time_unit(args.time_unit),
        insecure: args.insecure,
        same_host: args.same_host,
        idle_poll: args.idle_poll.choice(),
        repeats: args.repeats,
        csv: args.csv,
        out: args.out.clone(),
        command_line: std::env::args().collect(),
        seed: args.seed.unwrap_or_else(seed_default),
        ..BenchSpec::new(program)
    })
}

fn narrow(values: &[u64], flag: &str) -> Result<Vec<u32>> {
    let narrow =
        |&value| u32::try_from(value).with_context(|| format!("{flag} {value} is too many"));
    values.iter().map(narrow).collect()
}
