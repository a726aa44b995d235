//! `moonwire load`: one run against any servers, its summary and its Run file.

mod args;
mod settings;

use std::path::Path;

use anyhow::{Context, Result, bail};
use moonwire_lab::{LocalServer, describe_environment};
use moonwire_load::{Control, Ending, LoadError, Outcome, Progress, Scenario, Target};
use moonwire_report::{Content, Run, Style, Verdict, objection, render_all, summary, write_run};

use self::args::OutputArgs;
pub(crate) use self::args::{LoadArgs, TimeUnit};
pub(crate) use self::settings::{check_batches, seed_default, time_unit};
use crate::exit::Exit;
use crate::output;
use crate::progress::LoadProgress;
use crate::report::RUN_FILE;
use crate::signals;

/// Runs the load, prints its summary and writes what was asked for.
pub(crate) fn run(args: LoadArgs) -> Result<Exit> {
    let scenario = Scenario::new(settings::resolve(&args)?)?;
    if !args.output.quiet && !scenario.targets.iter().any(Target::is_secure) {
        let connections = &args.connections;
        announce_unused_trust("--cacert", connections.cacert.is_some());
        announce_unused_trust("--insecure", connections.insecure);
    }
    if args.echo {
        return echo(&scenario, args.output.quiet);
    }
    prepare(&args.output)?;
    let mut environment = describe_environment(std::env::args().collect(), scenario.seed);
    // A local server is sampled beside the run; a remote one cannot be.
    let mut server = LocalServer::find(&scenario.targets);
    let mut progress = LoadProgress::new(args.output.quiet);
    let mut on_progress = |now: &Progress| {
        if let Some(server) = &mut server {
            server.note(now.phase);
        }
        progress.show(now, &[]);
    };
    let mut control = Control {
        stop: signals::stop_on_interrupt()?,
        on_progress: Some(&mut on_progress),
    };
    let result = moonwire_load::run(&scenario, &mut control);
    progress.finish();
    let mut outcome = match result {
        Err(LoadError::Interrupted(sentence)) => return Ok(interrupted(&sentence)),
        result => result?,
    };
    if let Some(server) = server {
        server.finish(&mut outcome.cell);
        // Some are on what the server used.
        let thresholds = scenario.slo.iter().map(|slo| slo.evaluate(&outcome.cell));
        outcome.cell.thresholds = thresholds.collect();
    }
    environment.elapsed_s = progress.elapsed_s();
    let exit = exit_of(&outcome);
    let name = scenario
        .targets
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let run = Run {
        rules: None,
        capacities: Vec::new(),
        ceilings: Vec::new(),
        name,
        environment,
        content: Content::Load(Box::new(outcome.cell)),
    };
    Ok(output::exit_after(exit, publish(&run, &args.output)))
}

/// Says of a flag about certificates that nobody will show one.
pub(crate) fn announce_unused_trust(flag: &str, is_given: bool) {
    if is_given {
        output::remark(&format!("{flag} is not used: no URL is a wss:// one"));
    }
}

/// Echoes on one connection; what ended it in one line.
fn echo(scenario: &Scenario, quiet: bool) -> Result<Exit> {
    let stop = signals::stop_on_interrupt()?;
    let outcome = match moonwire_load::echo(scenario, &stop) {
        Err(LoadError::Interrupted(sentence)) => return Ok(interrupted(&sentence)),
        outcome => outcome?,
    };
    let compressed = if outcome.deflate { ", compressed" } else { "" };
    let end = match (&outcome.error, &outcome.close) {
        (Some(error), _) => error.clone(),
        (None, Some((Some(code), reason))) => format!("closed by the server: {code} {reason}"),
        (None, Some((None, _))) => "closed by the server without a code".to_owned(),
        (None, None) => "interrupted".to_owned(),
    };
    if !outcome.upgraded && outcome.error.is_some() {
        bail!("{end}");
    }
    if !quiet {
        output::answer(&format!("{} echoed{compressed}; {end}\n", outcome.messages))?;
    }
    Ok(match (&outcome.error, &outcome.close) {
        (None, None) => Exit::Interrupted,
        _ => Exit::Success,
    })
}

/// The end of a run that never began.
fn interrupted(sentence: &str) -> Exit {
    output::complain(sentence);
    Exit::Interrupted
}

/// The more serious answer wins: an interrupted run is no judgement on its thresholds, and an
/// invalid one cannot support them.
fn exit_of(outcome: &Outcome) -> Exit {
    if outcome.ending == Ending::Interrupted {
        return Exit::Interrupted;
    }
    match outcome.verdict() {
        Verdict::Invalid => Exit::Invalid,
        Verdict::Valid | Verdict::Suspect if !outcome.thresholds_passed() => Exit::ThresholdFailed,
        Verdict::Valid | Verdict::Suspect => Exit::Success,
    }
}

/// Makes sure that the results have a place before anything is measured.
fn prepare(args: &OutputArgs) -> Result<()> {
    if let Some(path) = &args.json {
        output::check_writable(path)?;
    }
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder '{}'", folder.display()))?;
        output::check_writable(&folder.join(RUN_FILE))?;
    }
    output::announce_replacement(args.out.as_deref(), args.quiet);
    Ok(())
}

/// Prints and writes all that was asked for; one that cannot be written does not keep the others.
fn publish(run: &Run, args: &OutputArgs) -> [Result<()>; 3] {
    let json_on_stdout = args.json.as_deref() == Some(Path::new("-"));
    let mut said = Ok(());
    if !args.quiet && !json_on_stdout {
        let style = Style {
            color: output::colour(),
        };
        said = output::answer(&summary(run, style));
    } else {
        objection(run)
            .iter()
            .for_each(|line| output::complain(line));
    }
    let json = args.json.as_ref();
    let json = json.map_or(Ok(()), |path| write_json(run, path));
    let out = args.out.as_ref();
    let report = out.map_or(Ok(()), |folder| write_report(run, folder, args.quiet));
    [said, json, report]
}

fn write_report(run: &Run, folder: &Path, quiet: bool) -> Result<()> {
    write_run(run, &folder.join(RUN_FILE))?;
    let page = render_all(run, folder)?;
    if !quiet {
        output::remark(&format!("report: {}", page.display()));
    }
    Ok(())
}

/// Writes the Run file to a path, or to stdout when it is `-`.
pub(crate) fn write_json(run: &Run, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return output::answer(&run.to_json());
    }
    Ok(write_run(run, path)?)
}
