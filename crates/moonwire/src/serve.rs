//! `moonwire serve`: the application server, from its configuration to its last counter.

mod detach;

use std::env;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use moonwire_load::quantity;
use moonwire_server::{
    Config, DriverChoice, LappsHome, LogFormat, Overrides, Server, Stopper, TlsRecords,
    check_log_filter,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use tracing_subscriber::EnvFilter;

use crate::choice;
use crate::exit::Exit;
use crate::output;

/// Run the application server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration; without it the shipped echo and amplify are served on 127.0.0.1:5083
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve an installation of LAppS: its ws.json, lapps.json and apps [default: $LAPPS_HOME, else
    /// /opt/lapps]
    #[arg(long, value_name = "HOME", num_args = 0..=1, conflicts_with = "config")]
    lapps: Option<Option<PathBuf>>,
    /// Go on in the background: print the process id and exit once it serves, or with its sentence
    /// and exit code if it does not start
    ///
    /// It has a session of its own. What it logs once it serves is lost.
    #[arg(short = 'd', long, conflicts_with = "check")]
    detach: bool,
    /// Load everything, say OK and exit
    ///
    /// Reads every key of the configuration, the log filter, the certificate and its key, and
    /// loads the Lua code of every service. It does not run onStart and listens nowhere: whether
    /// an address is free, only a start can tell.
    #[arg(long)]
    check: bool,
    /// Listen here instead (repeatable; port 0 lets the system choose)
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Speak TLS with a certificate made now, which no client can verify: for development
    #[arg(long)]
    dev_tls: bool,
    /// Serve the app in DIR (its file is DIR/NAME.lua) at /NAME as well (repeatable)
    #[arg(long, value_name = "NAME=DIR", value_parser = app)]
    app: Vec<(String, PathBuf)>,
    /// Threads, each with its own listener and service instances [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    workers: Option<usize>,
    /// Connections that are to be possible at once; beyond the hard limit of open files (ulimit
    /// -Hn) each worker has a table of descriptors of its own, and there are as many as that takes
    #[arg(long, value_name = "N", value_parser = connections)]
    connections: Option<usize>,
    /// How workers ask the kernel for their sockets: epoll, io_uring, or auto, which is
    /// io_uring where it can be had [default: epoll]
    #[arg(long, value_name = "NAME", env = "MOONWIRE_DRIVER", hide_possible_values = true,
        value_parser = choice::driver())]
    driver: Option<DriverChoice>,
    /// Who seals and opens the records of TLS 1.3 after the handshake: own or rustls [default:
    /// rustls]
    #[arg(long, value_name = "NAME", env = "MOONWIRE_TLS_RECORDS", hide_possible_values = true,
        value_parser = choice::tls_records())]
    tls_records: Option<TlsRecords>,
    /// What to log, such as `debug` or `moonwire_server=debug,warn`; RUST_LOG wins
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How log lines look: text or compact
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// Serves until SIGTERM, SIGINT, SIGQUIT or SIGHUP; reads certificates again on SIGUSR1.
pub(crate) fn run(args: Args) -> Result<Exit> {
    let Args {
        config,
        lapps,
        detach,
        check,
        listen,
        dev_tls,
        app,
        workers,
        connections,
        driver,
        tls_records,
        log,
        log_format,
    } = args;
    if detach {
        if !detach::is_detached() {
            return detach::start();
        }
        detach::leave_session()?;
    }
    let overrides = Overrides {
        listen,
        workers,
        connections,
        driver,
        tls_records,
        apps: app,
        dev_tls,
    };
    let mut config = match (&config, &lapps) {
        (Some(file), _) => Config::load(file, &overrides)?,
        (None, Some(home)) => installation(home.as_deref(), &overrides)?,
        (None, None) => Config::shipped(&overrides)?,
    };
    if config.workers == 0 && !overrides.listen.is_empty() {
        output::remark("--listen is not used: with workers = 0 nobody can connect");
    }
    config.remarks.iter().for_each(|line| output::remark(line));
    config.log = log_filter(log)?.unwrap_or(config.log);
    config.log_format = log_format.unwrap_or(config.log_format);
    if check {
        Server::check(&config)?;
        output::answer(&format!("OK: {}", names(&config)))?;
        return Ok(Exit::Success);
    }
    log_to_stderr(&config)?;
    let server = Server::start(config)?;
    stop_on_signal(server.stopper(), lapps.is_some())?;
    reload_on_signal(server.stopper())?;
    // A server that serves is worth more than the lines that say so.
    if let Err(error) = announce(&server) {
        output::complain(&format!("{error:#}"));
    }
    if detach {
        detach::say_ready()?;
    }
    output::remark(&server.wait()?);
    Ok(Exit::Success)
}

/// The configuration of an installation of LAppS. Its services find their folder in the
/// environment; only at its start can a process be given one, so this one starts again.
fn installation(home: Option<&Path>, overrides: &Overrides) -> Result<Config> {
    let conversion = LappsHome::find(home).convert()?;
    let apps = format!("{}/", conversion.apps.display());
    let path = env::var_os(LUA_PATH).unwrap_or_default();
    let path = path.to_string_lossy();
    let has_path = path.ends_with(&conversion.module_path);
    if !has_path || env::var_os(APPS_DIR).is_none_or(|value| value != *apps) {
        // Without one of its own Lua has its default, which `;;` stands for.
        let path = if path.is_empty() { ";;" } else { &*path };
        let program = env::current_exe().context("our own program cannot be found")?;
        let error = Command::new(program)
            .args(env::args_os().skip(1))
            .env(APPS_DIR, apps)
            .env(LUA_PATH, format!("{path}{}", conversion.module_path))
            .exec();
        return Err(error).context("our own program cannot be started again");
    }
    for remark in &conversion.remarks {
        output::remark(remark);
    }
    Ok(Config::lapps(&conversion, overrides)?)
}

/// One line for each address, which scripts wait for, then the services.
fn announce(server: &Server) -> Result<()> {
    let scheme = if server.is_tls() { "wss" } else { "ws" };
    let workers = server.workers();
    for address in server.addresses() {
        output::answer(&format!(
            "listening on {scheme}://{address} (workers {workers})"
        ))?;
    }
    for (name, target, instances) in server.services() {
        output::answer(&format!(
            "service {name} on {target} (instances {instances})"
        ))?;
    }
    for (name, instances) in server.standalone() {
        output::answer(&format!("service {name} runs (instances {instances})"))?;
    }
    Ok(())
}

fn names(config: &Config) -> String {
    let services = config.services.iter();
    let standalone = config.standalone.iter();
    let names: Vec<_> = services
        .map(|s| format!("{} on {}", s.name, s.target))
        .chain(standalone.map(|s| format!("{} runs", s.name)))
        .collect();
    names.join(", ")
}

/// What wins over the configuration: RUST_LOG, then `--log`. Both must be right.
fn log_filter(log: Option<String>) -> Result<Option<String>> {
    let mut wins = None;
    let environment = env::var("RUST_LOG").ok();
    for (place, filter) in [("--log", log), ("RUST_LOG", environment)] {
        let Some(filter) = filter.filter(|filter| !filter.is_empty()) else {
            continue;
        };
        check_log_filter(&filter).map_err(|problem| anyhow!("{place}: `{filter}` {problem}"))?;
        wins = Some(filter);
    }
    Ok(wins)
}

fn log_to_stderr(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("it was checked before")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A line that cannot be written is lost; saying so on stderr would panic in a worker.
        .log_internal_errors(false)
        .with_ansi(output::colour_on_stderr())
        .with_writer(std::io::stderr);
    let started = match config.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Compact => lines.compact().without_time().with_target(false).try_init(),
    };
    started.map_err(|error| anyhow!("cannot log: {error}"))
}

/// The first signal stops the server in good order; a second one ends the process at once, and so
/// does a worker that is not done in time. The handler only writes a byte; everything else is done
/// by a thread of our own.
///
/// As LAppS does, its successor ignores that a terminal hangs up.
fn stop_on_signal(stopper: Stopper, is_lapps: bool) -> Result<()> {
    let (mut signals, write) = UnixStream::pair().context("cannot listen for signals")?;
    // `nohup` has it ignored, which is to stay so.
    let hangup = (!is_lapps && !is_hangup_ignored()).then_some(SIGHUP);
    if is_lapps {
        flag::register(SIGHUP, Arc::default()).context("cannot listen for signals")?;
    }
    for signal in [SIGTERM, SIGINT, SIGQUIT].into_iter().chain(hangup) {
        let write = write.try_clone().context("cannot listen for signals")?;
        pipe::register(signal, write).context("cannot listen for signals")?;
    }
    let watch = move || {
        let mut byte = [0];
        if signals.read_exact(&mut byte).is_err() {
            return;
        }
        stopper.stop();
        let patience = stopper.drain_timeout() + GRACE;
        // It is refused only for no time at all; then there is just the second signal.
        let _ = signals.set_read_timeout(Some(patience));
        match signals.read_exact(&mut byte) {
            Ok(()) => std::process::exit(EXIT_BY_SECOND_SIGNAL),
            Err(_) => give_up(&stopper, patience),
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .context("cannot listen for signals")?;
    Ok(())
}

/// SIGUSR1: certificates are read again, and nobody is disturbed.
fn reload_on_signal(stopper: Stopper) -> Result<()> {
    let (mut signals, write) = UnixStream::pair().context("cannot listen for signals")?;
    pipe::register(SIGUSR1, write).context("cannot listen for signals")?;
    let watch = move || {
        let mut byte = [0];
        while signals.read_exact(&mut byte).is_ok() {
            match stopper.reload_certificates() {
                Ok(0) => output::remark("there are no certificates to be read again"),
                Ok(1) => output::remark("1 certificate was read again"),
                Ok(count) => output::remark(&format!("{count} certificates were read again")),
                Err(sentence) => {
                    output::complain(&format!("the certificates stay as they were: {sentence}"))
                }
            }
        }
    };
    thread::Builder::new()
        .name("reload".to_owned())
        .spawn(watch)
        .context("cannot listen for signals")?;
    Ok(())
}

/// Whether whoever started this process wants it to outlive its terminal: bit N - 1 of the mask is
/// signal N.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Ends the process if a worker has not ended: nothing can interrupt a callback from outside, and
/// a service manager would wait for ever.
fn give_up(stopper: &Stopper, patience: Duration) {
    let running = stopper.running();
    if running.is_empty() {
        return;
    }
    output::complain(&format!(
        "{} has not ended {} s after the signal: a callback of a service does not return; \
         the process ends without it",
        running.join(", "),
        patience.as_secs_f32()
    ));
    std::process::exit(EXIT_BY_STUCK_WORKER);
}

fn app(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !folder.is_empty() => {
            Ok((name.to_owned(), folder.into()))
        }
        Some(_) | None => Err("write NAME=DIR, such as chat=apps/chat".to_owned()),
    }
}

fn connections(text: &str) -> Result<usize, String> {
    let connections = quantity::count(text)?;
    usize::try_from(connections).map_err(|_| format!("'{text}' connections are too many"))
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse();
    threads.map_err(|_| format!("'{text}' is not a number of threads; write one such as 4"))
}

/// Where services of LAppS find that of all services, with a slash behind it.
const APPS_DIR: &str = "LAPPS_APPS_DIR";

/// Where Lua looks for modules.
const LUA_PATH: &str = "LUA_PATH";

/// What workers have after the drain timeout for the callbacks of the end, `onShutdown` above all.
const GRACE: Duration = Duration::from_secs(5);

/// Not all of the work was done: some `onShutdown` did not run.
const EXIT_BY_STUCK_WORKER: i32 = 1;

/// 128 + SIGINT, as a shell reports a process that a signal ended.
const EXIT_BY_SECOND_SIGNAL: i32 = 130;

const EXAMPLES: &str = "Examples:
  moonwire serve                                  echo on /echo and amplify on /amplify, port 5083
  moonwire serve --config moonwire.toml --check   say what is wrong with a configuration
  moonwire serve --app greet=./greet              one more service, on /greet
  moonwire serve --lapps /opt/lapps -d            the services of an installation of LAppS, detached
  moonwire serve --listen 0.0.0.0:443 --dev-tls   wss:// for a first try";
