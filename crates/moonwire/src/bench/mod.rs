//! `moonwire bench`: the latency suite and its report.

mod args;
mod watch;

use anyhow::{Context, Result, anyhow};
use moonwire_lab::{BenchEnding, BenchSpec, CpuLimits, bench};
use moonwire_load::Target;

pub(crate) use self::args::BenchArgs;
use self::watch::Watch;
use crate::exit::Exit;
use crate::load::{announce_unused_trust, check_batches, seed_default, time_unit};
use crate::output;
use crate::signals;
use crate::sweep;

/// Runs the sweep, prints its tables and says where the report is.
pub(crate) fn run(args: BenchArgs) -> Result<Exit> {
    let spec = spec(&args)?;
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    let url = args.url.as_deref().map(Target::parse).transpose()?;
    if !args.quiet && !url.is_some_and(|url| url.is_secure()) {
        announce_unused_trust("--insecure", args.insecure);
    }
    output::announce_replacement(args.out.as_deref(), args.quiet);
    let stop = signals::stop_on_interrupt()?;
    let mut watch = Watch::new(args.quiet);
    let result = bench(&spec, &stop, &mut watch);
    watch.finish();
    let outcome = result?;
    let end = match &outcome.page {
        Some(page) => format!("report: {}", page.display()),
        None => "no cell was measured".to_owned(),
    };
    let told = sweep::tell(&outcome.run, args.json.as_deref(), args.quiet, &end);
    let interrupted = outcome.ending == BenchEnding::Interrupted;
    let exit = sweep::exit_of(&outcome.run, interrupted);
    Ok(output::exit_after(exit, told))
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
        cpu_limits: CpuLimits {
            // A server that runs already is in a group of somebody else.
            server: match &args.url {
                Some(_) => None,
                None => cpu_limit("--server-cpu-limit", args.server_cpu_limit.as_deref())?,
            },
            proxy: None,
            client: cpu_limit("--client-cpu-limit", args.client_cpu_limit.as_deref())?,
        },
        repeats: args.repeats,
        csv: args.csv,
        out: args.out.clone(),
        command_line: std::env::args().collect(),
        seed: args.seed.unwrap_or_else(seed_default),
        ..BenchSpec::new(program)
    })
}

/// What was typed behind a flag.
pub(crate) fn cpu_limit(flag: &str, text: Option<&str>) -> Result<Option<f64>> {
    let wrong = |clause| anyhow!("{flag}: {clause}");
    let limit = text.map_or(Ok(None), CpuLimits::parse).map_err(wrong)?;
    let processors = std::thread::available_parallelism().map_or(usize::MAX, Into::into);
    CpuLimits::excess(limit, processors).map_or(Ok(limit), |clause| Err(wrong(clause)))
}

fn narrow(values: &[u64], flag: &str) -> Result<Vec<u32>> {
    let narrow =
        |&value| u32::try_from(value).with_context(|| format!("{flag} {value} is too many"));
    values.iter().map(narrow).collect()
}
