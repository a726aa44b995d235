//! What can go wrong with a service, and whose fault it is.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt, io, iter};

use crate::line::log_line;

/// A service that could not be loaded, or a callback that failed.
#[derive(Debug)]
pub enum ScriptError {
    /// The service's name or folder cannot be used.
    Source {
        /// The service's name.
        service: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The service's file is missing or cannot be read.
    Unreadable {
        /// The file.
        at: Box<Place>,
        /// What the operating system said.
        error: io::Error,
    },
    /// The service's file is not Lua.
    Syntax {
        /// The line where the parser gave up.
        at: Box<Place>,
        /// What the parser said.
        message: String,
    },
    /// The service's file does not return the service.
    NotATable {
        /// The file.
        at: Box<Place>,
        /// The type of what it returns.
        found: &'static str,
    },
    /// One of the four functions of the contract is missing.
    NoCallback {
        /// The file.
        at: Box<Place>,
        /// The function's name.
        callback: &'static str,
        /// The type of what is in its place.
        found: &'static str,
    },
    /// The script raised an error that it did not catch.
    Raised {
        /// The innermost line of Lua code.
        at: Box<Place>,
        /// The callback that ran, or [`LOADING`].
        callback: &'static str,
        /// The error's text, as Lua gives it (usually with the line).
        message: String,
        /// The calls that led to it, one a line, innermost first.
        traceback: String,
    },
    /// The script used more memory than the instance may have.
    OutOfMemory {
        /// The service's file.
        at: Box<Place>,
        /// The callback that ran, or [`LOADING`].
        callback: &'static str,
        /// The limit in bytes, if it was ours and not the system's.
        bytes_max: Option<usize>,
    },
    /// A callback took longer than it may, and was stopped.
    Overran {
        /// The line that ran.
        at: Box<Place>,
        /// The callback that ran, or [`LOADING`].
        callback: &'static str,
        /// How long it may take.
        timeout: Duration,
        /// How long after that it ended.
        late: Duration,
        /// The calls that led there, one a line, innermost first.
        traceback: String,
    },
    /// The virtual machine could not be set up.
    Machine {
        /// The service's name.
        service: String,
        /// What failed.
        message: String,
    },
}

/// What `callback` is while the file itself runs.
pub(crate) const LOADING: &str = "loading";

/// A service, its file and a line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The service's name.
    pub service: String,
    /// The service's file, or the module of it where the error is.
    pub file: PathBuf,
    /// The line, from 1, where it is known.
    pub line: Option<u32>,
}

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The name, the folder or the file of the service is wrong.
    Configuration,
    /// The service has a mistake.
    Script,
    /// This machine or moonwire itself.
    Host,
}

impl ScriptError {
    /// Who has to act.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Source { .. } | Self::Unreadable { .. } => Fault::Configuration,
            Self::Syntax { .. }
            | Self::NotATable { .. }
            | Self::NoCallback { .. }
            | Self::Raised { .. }
            | Self::OutOfMemory { .. }
            | Self::Overran { .. } => Fault::Script,
            Self::Machine { .. } => Fault::Host,
        }
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        match self {
            Self::Source { service, .. } | Self::Machine { service, .. } => service,
            Self::Unreadable { at, .. }
            | Self::Syntax { at, .. }
            | Self::NotATable { at, .. }
            | Self::NoCallback { at, .. }
            | Self::Raised { at, .. }
            | Self::OutOfMemory { at, .. }
            | Self::Overran { at, .. } => &at.service,
        }
    }

    /// The file and, where known, the line.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Source { .. } | Self::Machine { .. } => None,
            Self::Unreadable { at, .. }
            | Self::Syntax { at, .. }
            | Self::NotATable { at, .. }
            | Self::NoCallback { at, .. }
            | Self::Raised { at, .. }
            | Self::OutOfMemory { at, .. }
            | Self::Overran { at, .. } => Some(at),
        }
    }

    /// The line, from 1, where it is known.
    pub fn line(&self) -> Option<u32> {
        self.place()?.line
    }

    /// The calls that led to the error, one a line, innermost first; empty if nothing ran.
    pub fn traceback(&self) -> &str {
        if let Self::Raised { traceback, .. } | Self::Overran { traceback, .. } = self {
            traceback
        } else {
            ""
        }
    }

    /// The sentence and the calls that led to it, as lines of a log.
    pub fn log_lines(&self) -> String {
        let sentence = self.to_string();
        let calls = self.traceback().lines().take(CALLS_MAX);
        let lines: Vec<_> = iter::once(&*sentence).chain(calls).map(log_line).collect();
        lines.join("\n")
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service \"{}\": ", self.service())?;
        match self {
            Self::Source { reason, .. } => f.write_str(reason),
            Self::Unreadable { at, error } if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "{} does not exist", at.file.display())
            }
            Self::Unreadable { at, error } => {
                write!(f, "{} cannot be read: {error}", at.file.display())
            }
            Self::Syntax { at, message } => write!(f, "{at}: {message}"),
            Self::NotATable { at, found } => {
                let (service, file) = (&at.service, at.file.display());
                write!(f, "{file} returns {}, not a table: ", article(found))?;
                write!(
                    f,
                    "end it with the table of the service, like `return {service}`"
                )
            }
            Self::NoCallback {
                at,
                callback,
                found: "nil",
            } => {
                write!(f, "{} has no function {callback}", at.file.display())
            }
            Self::NoCallback {
                at,
                callback,
                found,
            } => {
                let found = article(found);
                write!(
                    f,
                    "{callback} in {} is {found}, not a function",
                    at.file.display()
                )
            }
            Self::Raised {
                callback, message, ..
            } => write!(f, "{callback}: {message}"),
            Self::OutOfMemory {
                callback,
                bytes_max,
                ..
            } => match bytes_max {
                Some(bytes) => {
                    let all = format_args!("all of its {bytes} bytes of memory");
                    write!(f, "{callback}: the instance used {all}")
                }
                None => write!(f, "{callback}: Lua ran out of memory"),
            },
            Self::Overran {
                at,
                callback,
                timeout,
                late,
                ..
            } => {
                let (limit_ms, late_ms) = (timeout.as_millis(), late.as_secs_f64() * 1000.0);
                write!(f, "{callback} was stopped at {at}: ")?;
                write!(
                    f,
                    "it ended {late_ms:.1} ms after its limit of {limit_ms} ms"
                )
            }
            Self::Machine { message, .. } => write!(f, "the Lua machine failed: {message}"),
        }
    }
}

impl error::Error for ScriptError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        if let Self::Unreadable { error, .. } = self {
            Some(error)
        } else {
            None
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")
        } else {
            Ok(())
        }
    }
}

/// Turns an error of the binding that came out of `callback` into ours. `at` is the service's file.
pub(crate) fn raised(
    error: &mlua::Error,
    mut at: Place,
    callback: &'static str,
    bytes_max: Option<usize>,
) -> ScriptError {
    if is_out_of_memory(error) {
        return ScriptError::OutOfMemory {
            at: Box::new(at),
            callback,
            bytes_max,
        };
    }
    let text = if let mlua::Error::RuntimeError(text) = error {
        text.clone()
    } else if let mlua::Error::CallbackError { traceback, cause } = error {
        format!("{cause}\n{traceback}")
    } else {
        error.to_string()
    };
    let (message, traceback) = text.split_once(TRACEBACK_HEAD).unwrap_or((&text, ""));
    let traceback = tidy_traceback(traceback);
    let found = position(message).or_else(|| traceback.lines().find_map(position));
    if let Some((file, line, _)) = found {
        at.line = Some(line);
        // LuaJIT cuts long names on the left and puts "..." there.
        let tail = file.trim_start_matches("...");
        if !at.file.to_string_lossy().ends_with(tail) {
            at.file = PathBuf::from(file);
        }
    }
    ScriptError::Raised {
        at: Box::new(at),
        callback,
        message: message.trim_end().into(),
        traceback,
    }
}

impl ScriptError {
    /// The same error, of a callback that was stopped for taking longer than `timeout`, and ended
    /// `late` after that.
    pub(crate) fn overran(self, timeout: Duration, late: Duration) -> Self {
        let Self::Raised {
            at,
            callback,
            traceback,
            ..
        } = self
        else {
            return self;
        };
        Self::Overran {
            at,
            callback,
            timeout,
            late,
            traceback,
        }
    }
}

/// Turns a failure to compile the service's file into ours.
pub(crate) fn syntax(message: &str, file: &Path, service: &str) -> ScriptError {
    let (line, rest) = match position(message) {
        Some((_, line, rest)) => (Some(line), rest),
        None => (None, message),
    };
    let at = Place {
        service: service.to_owned(),
        file: file.to_owned(),
        line,
    };
    ScriptError::Syntax {
        at: Box::new(at),
        message: rest.to_owned(),
    }
}

fn is_out_of_memory(error: &mlua::Error) -> bool {
    if let mlua::Error::CallbackError { cause, .. } = error {
        return is_out_of_memory(cause);
    }
    matches!(error, mlua::Error::MemoryError(_))
}

/// Drops the lines of our own prelude, in which nobody can correct anything.
fn tidy_traceback(traceback: &str) -> String {
    let lines = traceback
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with(PRELUDE))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Finds `file.lua:LINE:` at the start of a text; returns the file, the line and what follows.
fn position(text: &str) -> Option<(&str, u32, &str)> {
    let end = text.find(".lua:")? + ".lua".len();
    let (line, rest) = text[end + 1..].split_once(':')?;
    Some((
        text[..end].trim_start(),
        line.parse().ok()?,
        rest.trim_start(),
    ))
}

/// The type as Lua names it; the binding has more names (integers, null pointers).
pub(crate) fn lua_type(value: &mlua::Value) -> &'static str {
    use mlua::Value as V;
    match value {
        V::Nil => "nil",
        V::Boolean(_) => "boolean",
        V::Integer(_) | V::Number(_) => "number",
        V::String(_) => "string",
        V::Table(_) => "table",
        V::Function(_) => "function",
        V::Thread(_) => "thread",
        V::LightUserData(_) | V::UserData(_) | V::Error(_) | V::Other(_) => "userdata",
    }
}

/// "a number", "nil".
fn article(kind: &str) -> String {
    if kind == "nil" {
        kind.to_owned()
    } else {
        format!("a {kind}")
    }
}

/// Lines of a traceback that are logged; LuaJIT itself leaves out what is between the first ten
/// and the last eleven calls.
const CALLS_MAX: usize = 32;

/// What LuaJIT puts between a message and its calls.
const TRACEBACK_HEAD: &str = "\nstack traceback:\n";

/// The name under which Lua code of ours appears in tracebacks.
pub(crate) const PRELUDE: &str = "[moonwire]";

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Place {
        Place {
            service: "s".into(),
            file: PathBuf::from("apps/s/s.lua"),
            line: None,
        }
    }

    fn raise(text: &str) -> ScriptError {
        raised(
            &mlua::Error::RuntimeError(text.into()),
            at(),
            "onMessage",
            None,
        )
    }

    #[test]
    fn message_line_and_calls_are_told_apart() {
        let error = raise(
            "apps/s/s.lua:3: boom\nstack traceback:\n\t[C]: in function 'error'\n\t\
             apps/s/s.lua:3: in function 'onMessage'\n\t[moonwire]:7: in function <[moonwire]:6>",
        );
        assert_eq!(error.line(), Some(3));
        assert_eq!(
            error.to_string(),
            "service \"s\": onMessage: apps/s/s.lua:3: boom"
        );
        assert_eq!(
            error.traceback(),
            "[C]: in function 'error'\napps/s/s.lua:3: in function 'onMessage'"
        );
    }

    #[test]
    fn a_message_without_a_line_takes_it_from_the_calls() {
        let error = raise("boom\nstack traceback:\n\tapps/s/helper.lua:12: in function 'f'");
        assert_eq!(error.line(), Some(12));
        let place = error.place().unwrap();
        assert_eq!(place.file, PathBuf::from("apps/s/helper.lua"));
    }

    #[test]
    fn a_name_cut_by_luajit_is_still_the_services_file() {
        let error = raise("...s/s.lua:5: boom");
        assert_eq!(error.place().unwrap().file, PathBuf::from("apps/s/s.lua"));
        assert_eq!(error.line(), Some(5));
    }

    #[test]
    fn one_that_was_stopped_says_how_late_it_ended() {
        let error = raise("apps/s/s.lua:3: it took too long and was stopped");
        let error = error.overran(Duration::from_secs(1), Duration::from_micros(4_250));
        assert_eq!(
            error.to_string(),
            "service \"s\": onMessage was stopped at apps/s/s.lua:3: it ended 4.2 ms after its \
             limit of 1000 ms"
        );
    }

    #[test]
    fn an_error_may_cross_threads() {
        const fn check<T: Send + Sync>() {}
        const { check::<ScriptError>() }
    }
}
