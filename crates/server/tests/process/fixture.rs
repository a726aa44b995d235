//! A server in this process, with services written by the test.

use std::net::SocketAddr;
use std::path::Path;

use moonwire_server::{Config, ConfigError, DriverChoice, Overrides, Server, Stopper, TlsRecords};
use tempfile::TempDir;

use crate::client::Client;

/// Both ways to run the callbacks of a service, as the end of its table: the clients of either must
/// see the same.
pub(crate) const EXECUTIONS: [&str; 2] = ["", "execution = 'threaded'\n"];

/// A folder with a configuration and services.
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    /// `toml` as moonwire.toml.
    pub(crate) fn new(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("moonwire.toml"), toml).unwrap();
        Self { folder }
    }

    /// With `apps/NAME/NAME.lua`.
    pub(crate) fn app(self, name: &str, lua: &str) -> Self {
        let app = self.folder.path().join("apps").join(name);
        std::fs::create_dir_all(&app).unwrap();
        std::fs::write(app.join(format!("{name}.lua")), lua).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let named = std::env::var("MOONWIRE_DRIVER").ok();
        let driver = named.map(|name| name.parse().unwrap());
        let overrides = Overrides {
            listen: vec!["127.0.0.1:0".to_owned()],
            driver,
            // What is new is tried together.
            tls_records: (driver == Some(DriverChoice::IoUring)).then_some(TlsRecords::Own),
            ..Overrides::default()
        };
        Config::load(&self.folder.path().join("moonwire.toml"), &overrides)
    }

    pub(crate) fn start(self) -> Fixture {
        let config = self.load().unwrap_or_else(|error| panic!("{error}"));
        let server = Server::start(config).unwrap_or_else(|error| panic!("{error}"));
        let (address, stopper) = (server.addresses()[0], server.stopper());
        Fixture {
            server: Some(server),
            address,
            stopper,
            folder: self,
        }
    }
}

/// A running server, stopped at the end of the test.
pub(crate) struct Fixture {
    server: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) stopper: Stopper,
    pub(crate) folder: Folder,
}

impl Fixture {
    /// The shipped services on two workers.
    pub(crate) fn shipped() -> Self {
        Folder::new(
            "[server]\nworkers = 2\n[services.echo]\ntarget = '/echo'\n\
             [services.amplify]\ntarget = '/amplify'\n",
        )
        .start()
    }

    pub(crate) fn connect(&self, target: &str) -> Client {
        Client::connect(self.address, target)
    }

    /// One number of /metrics, summed over workers.
    pub(crate) fn metric(&self, name: &str, label: &str) -> u64 {
        let page = Client::get(self.address, "/metrics").body;
        let lines = page.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('{'))
                && line.contains(label)
        });
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }

    /// Waits until a number of /metrics is as it must become; the server says when it is, and the
    /// test fails when that takes too long.
    pub(crate) fn await_metric(&self, name: &str, label: &str, value: u64) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let found = self.metric(name, label);
            if found == value {
                return;
            }
            let waiting = std::time::Instant::now() < deadline;
            assert!(
                waiting,
                "{name}{{{label}}} stays {found} and does not become {value}"
            );
            std::thread::yield_now();
        }
    }

    /// Waits until it has stopped and returns its counters.
    pub(crate) fn wait(&mut self) -> String {
        self.server.take().unwrap().wait().unwrap()
    }

    /// Stops it and returns its counters.
    pub(crate) fn stop(mut self) -> String {
        self.stopper.stop();
        self.wait()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.stopper.stop();
            let stopped = server.wait();
            assert!(std::thread::panicking() || stopped.is_ok());
        }
    }
}
