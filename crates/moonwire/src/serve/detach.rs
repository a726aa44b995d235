//! `-d`: the server goes on in a session of its own, and the command that started it ends.
//!
//! The command starts itself once more, with a socket as standard input. The other process says
//! there that it serves; the end of the stream without a word says that it does not.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use rustix::{io, process, stdio};

use crate::exit::Exit;
use crate::output;

/// Whether this is the process that serves.
pub(super) fn is_detached() -> bool {
    env::var_os(DETACHED).is_some()
}

/// Starts the process that serves, and returns once it does. If it does not, it has said why, and
/// this process ends as it did.
pub(super) fn start() -> Result<Exit> {
    // Whoever waits for the end of a pipe that this process inherited must not wait for a server.
    moonwire_lab::keep_inherited_files()
        .context("inherited files cannot be kept from the server")?;
    let (mut ours, theirs) = UnixStream::pair().context("cannot detach")?;
    let program = env::current_exe().context("our own program cannot be found")?;
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1)).env(DETACHED, "1");
    let child = command.stdin(OwnedFd::from(theirs)).spawn();
    let mut child = child.context("our own program cannot be started again")?;
    // It keeps the server's end of the socket open.
    drop(command);
    let mut word = [0];
    if ours.read_exact(&mut word).is_ok() {
        output::answer(&format!("detached as process {}", child.id()))?;
        return Ok(Exit::Success);
    }
    let status = child.wait().context("the server cannot be waited for")?;
    match status.code() {
        Some(code) => std::process::exit(code),
        None => Err(anyhow!("the server did not start: {status}")),
    }
}

/// Leaves the session of the terminal, whose end would end this process, too.
pub(super) fn leave_session() -> Result<()> {
    match process::setsid() {
        // Started again for its environment, it has left already.
        Err(_) if process::getsid(None).ok() == Some(process::getpid()) => Ok(()),
        left => left.map(|_| ()).context("cannot leave the session"),
    }
}

/// Lets go of what was inherited from the command, and tells it that this process serves.
pub(super) fn say_ready() -> Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.context("/dev/null cannot be opened")?;
    let command = io::fcntl_dupfd_cloexec(stdio::stdin(), FIRST_FREE);
    stdio::dup2_stdin(&null)
        .and_then(|()| stdio::dup2_stdout(&null))
        .and_then(|()| stdio::dup2_stderr(&null))
        .context("the standard streams cannot be let go of")?;
    if let Ok(command) = command {
        // The command may have been ended; this process serves all the same.
        let _ = File::from(command).write_all(b"1");
    }
    Ok(())
}

/// Set for the process that serves.
const DETACHED: &str = "MOONWIRE_DETACHED";

/// The first descriptor that is no standard stream.
const FIRST_FREE: i32 = 3;
