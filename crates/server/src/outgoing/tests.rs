//! `cws` as services see it: real services, real servers, real sockets. What is wrong fails an
//! assertion of the service.

mod ending;
mod opening;
mod pages;
mod peer;

use std::sync::{Arc, Mutex};
use std::{fs, io};

use moonwire_lua::{LoadOptions, Module, ServiceSource, Standalone};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

use super::Outgoing;
use crate::background::Nowhere;
use crate::config::{Config, OutgoingTls, Overrides};
use crate::server::Server;

/// Runs `code` as the `run` of a standalone service.
fn run(code: &str) {
    run_with(Outgoing::default(), code);
}

fn run_with(outgoing: Outgoing, code: &str) {
    let code = format!(
        "{LOOP}local s = {{}} function s.init() end function s.run()\n{code}\nend return s"
    );
    let options = LoadOptions {
        connector: Some(Arc::new(outgoing)),
        ..LoadOptions::default()
    };
    run_service("s", &code, &options).unwrap_or_else(|error| panic!("{error}"));
}

fn run_service(name: &str, code: &str, options: &LoadOptions) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(format!("{name}.lua")), code).unwrap();
    let source = ServiceSource {
        preload: vec![Module::Cws, Module::Nap, Module::Time],
        ..ServiceSource::new(name, folder.path())
    };
    let mut service = Standalone::load(&source, options, 1, Box::new(Nowhere)).unwrap();
    let done = service.init().and_then(|()| service.run());
    done.map_err(|error| error.to_string())
}

/// `loop(done)` runs the event loop until `done()`, within bounds. One line, so that the lines of
/// errors are those of the code.
const LOOP: &str = "local function loop(done) local deadline = time.now() + 20000 \
    while not done() do assert(time.now() < deadline, 'it takes too long') cws:eventLoop() end \
    end ";

/// A server of ours, stopped with its test.
struct Peer {
    server: Option<Server>,
    folder: TempDir,
}

impl Peer {
    /// The shipped `echo` and, at /script, a service whose `onMessage` is `code`.
    fn start(code: &str) -> Self {
        Self::start_with("", "127.0.0.1:0", code)
    }

    /// The same with this before the services in its configuration.
    fn start_with(toml: &str, listen: &str, code: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = folder.path().join("apps/script");
        fs::create_dir_all(&app).unwrap();
        let code = format!(
            "return {{onStart = function() end, onShutdown = function() end, \
             onDisconnect = function(h) end, onMessage = function(h, o, m) {code} end}}"
        );
        fs::write(app.join("script.lua"), code).unwrap();
        let file = folder.path().join("moonwire.toml");
        let toml = format!(
            "[server]\nworkers = 1\n{toml}\n[services.echo]\ntarget = '/echo'\n\
             [services.script]\ntarget = '/script'\n"
        );
        fs::write(&file, toml).unwrap();
        let overrides = Overrides {
            listen: vec![listen.to_owned()],
            ..Overrides::default()
        };
        let config = Config::load(&file, &overrides).unwrap_or_else(|error| panic!("{error}"));
        let server = Server::start(config).unwrap_or_else(|error| panic!("{error}"));
        Self {
            server: Some(server),
            folder,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// `ws://ADDRESS/TARGET` or the same with wss.
    fn url(&self, target: &str) -> String {
        let scheme = if self.server().is_tls() { "wss" } else { "ws" };
        format!("{scheme}://{}/{target}", self.server().addresses()[0])
    }

    /// Trust in its certificate.
    fn trusted(&self) -> OutgoingTls {
        let ca = self.folder.path().join("authorities.pem");
        fs::write(&ca, self.server().certificate().unwrap()).unwrap();
        OutgoingTls {
            ca: Some(ca),
            ..OutgoingTls::default()
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let server = self.server.take().unwrap();
        server.stopper().stop();
        let stopped = server.wait();
        assert!(std::thread::panicking() || stopped.is_ok());
    }
}

/// What this thread logs while `run` runs.
fn logged(run: impl FnOnce()) -> String {
    let log = Log::default();
    let lines = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone());
    tracing::subscriber::with_default(lines.finish(), run);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
