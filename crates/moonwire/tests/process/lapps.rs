//! An installation of LAppS, served and converted.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getsid, kill_process};
use tempfile::TempDir;

use crate::apps::client::Client;
use crate::harness::{PATIENCE, Server, moonwire, run, wait};

fn home() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("etc/conf");
    let app = folder.path().join("apps/echo");
    for folder in [&conf, &app] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(
        conf.join("ws.json"),
        r#"{"listeners": 1, "connection_weight": 1.0, "ip": "127.0.0.1", "port": 0, "tls": false,
            "workers": {"workers": 1, "max_connections": 10, "preads": 4},
            "acl": {"policy": "allow", "exclude": []}}"#,
    )
    .unwrap();
    fs::write(
        conf.join("lapps.json"),
        r#"{"directories": {"applications": "apps"}, "services": {
            "echo": {"internal": false, "instances": 1, "auto_start": true, "protocol": "raw",
                "request_target": "/echo", "max_inbound_message_size": 300000, "preload": null},
            "broken": {"standalone": false, "instances": 1, "auto_start": true,
                "protocol": "raw", "request_target": "/broken"}}}"#,
    )
    .unwrap();
    fs::write(app.join("echo.lua"), ECHO).unwrap();
    let broken = folder.path().join("apps/broken");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("broken.lua"), "error('on purpose')").unwrap();
    folder
}

fn assert_echo(server: &Server) {
    let mut client = Client::connect(server, "/echo");
    client.send_text("5");
    assert_eq!(client.hear(), 5);
}

#[test]
fn an_installation_is_served_with_its_services() {
    let folder = home();
    let server = Server::moonwire(&["--lapps", folder.path().to_str().unwrap()]);
    assert_echo(&server);
    crate::harness::signal(server.id(), Signal::HUP);
    assert_eq!(server.end_by(Signal::QUIT).code(), Some(0));
}

/// With a slash behind it, whatever is inherited.
#[test]
fn services_find_their_folder_in_the_environment() {
    let folder = home();
    let wanted = format!("{}/apps/", folder.path().display());
    let echo = format!(
        "assert(os.getenv('LAPPS_APPS_DIR') == '{wanted}')\nassert(require('theirs') == 5)\n{ECHO}"
    );
    // A module of another service, also of one that does not start.
    fs::write(folder.path().join("apps/broken/theirs.lua"), "return 5").unwrap();
    fs::write(folder.path().join("apps/echo/echo.lua"), echo).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_moonwire"));
    server.args(["serve", "--lapps"]).arg(folder.path());
    let server = Server::start(server.env("LAPPS_APPS_DIR", "/elsewhere"));
    assert_echo(&server);
    assert_eq!(server.terminate().code(), Some(0));
}

/// The command ends, and with it both of its outputs, while the server goes on without them. They
/// are files here, because a pipe that the server kept would never end.
#[test]
fn a_detached_server_outlives_the_command() {
    let folder = home();
    let place = folder.path().join("stdout");
    let mut command = moonwire();
    command.args(["serve", "-d", "--lapps"]).arg(folder.path());
    let mut command = command
        .stdout(File::create(&place).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = wait(&mut command, PATIENCE).expect("the command ends");
    let said = fs::read_to_string(place).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    let words = |begin: &str| {
        let mut lines = said.lines();
        let rest = lines.find_map(|line| line.strip_prefix(begin));
        rest.and_then(|rest| rest.split_whitespace().next())
            .map(str::to_owned)
    };
    let id: i32 = words("detached as process ").unwrap().parse().unwrap();
    let id = Pid::from_raw(id).unwrap();
    let _kills_it = Detached(id);
    let url = format!("{}/echo", words("listening on ").unwrap());
    let load = run(moonwire().args(["load", &url, "-c", "1", "-n", "1", "-p", "1"]));
    assert_eq!(load.code, Some(0), "{load:?}");
    assert_eq!(getsid(Some(id)).unwrap(), id, "it has a session of its own");
    for stream in 0..3 {
        let link = format!("/proc/{}/fd/{stream}", id.as_raw_nonzero());
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/dev/null"));
    }
    kill_process(id, Signal::TERM).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !is_gone(id) {
        assert!(Instant::now() < deadline, "it does not end");
        // It is no child of this process, so that nothing tells of its end.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Its sentence and its exit code are those of the command.
#[test]
fn a_detached_server_that_does_not_start_says_why() {
    let folder = home();
    fs::write(
        folder.path().join("etc/conf/ws.json"),
        "{\"port\": \"5083\"}",
    )
    .unwrap();
    let outcome = run(moonwire()
        .args(["serve", "-d", "--lapps"])
        .arg(folder.path()));
    assert_eq!(
        (outcome.code, &*outcome.stdout),
        (Some(104), ""),
        "{outcome:?}"
    );
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("`port` is \"5083\""), "{outcome:?}");
}

/// Kills the server of a test that fails; of one that does not it has ended.
struct Detached(Pid);

impl Drop for Detached {
    fn drop(&mut self) {
        if thread::panicking() {
            kill_process(self.0, Signal::KILL).ok();
        }
    }
}

/// A process whose parent has gone may stay a zombie, where nobody waits for it.
fn is_gone(id: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    status.map_or(true, |status| status.contains(") Z "))
}

#[test]
fn a_conversion_can_be_served_and_names_what_it_ignores() {
    let folder = home();
    let output = Command::new(env!("CARGO_BIN_EXE_moonwire"))
        .args(["config", "convert"])
        .env("LAPPS_HOME", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert!(
        remarks.contains("ws.json: `workers.preads` has no effect"),
        "{remarks}"
    );
    let file = folder.path().join("moonwire.toml");
    fs::write(&file, output.stdout).unwrap();
    let server = Server::moonwire(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.terminate().code(), Some(0));
}

/// By its name: nobody who moves from LAppS has a moonwire.toml.
#[test]
fn a_file_that_an_installation_needs_is_named() {
    let folder = home();
    let conf = folder.path().join("etc/conf");
    let said = || {
        let mut serve = moonwire();
        let outcome = run(serve
            .args(["serve", "--check", "--lapps"])
            .arg(folder.path()));
        assert_eq!(outcome.code, Some(104), "{outcome:?}");
        let mut lines = outcome.stderr.lines();
        let is_error = |line: &&str| line.starts_with("moonwire: ");
        lines.rfind(is_error).map(str::to_owned).unwrap()
    };
    let ws = conf.join("ws.json");
    let tls =
        r#"{"tls": true, "port": 0, "tls_certificates": {"key": "/no/key.pem", "cert": "CERT"}}"#;
    let cert = ws.to_str().unwrap();
    fs::write(&ws, tls.replace("CERT", "/no/cert.pem")).unwrap();
    let expected = format!("{cert}: `tls_certificates.cert` names /no/cert.pem, which cannot");
    assert!(said().contains(&expected), "{}", said());
    fs::write(&ws, tls.replace("CERT", cert)).unwrap();
    assert!(said().contains("`tls_certificates.key` names /no/key.pem"));
    let lapps = conf.join("lapps.json");
    fs::write(&lapps, r#"{"services": {}}"#).unwrap();
    let expected = format!("{}: no service of it starts", lapps.display());
    assert!(said().contains(&expected), "{}", said());
    fs::remove_file(&lapps).unwrap();
    let expected = format!("{}: there is no such file, so there is no", lapps.display());
    assert!(said().contains(&expected), "{}", said());
}

#[test]
fn an_installation_that_cannot_be_read_is_one_sentence() {
    let folder = home();
    fs::write(
        folder.path().join("etc/conf/ws.json"),
        "{\"port\": \"5083\"}",
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_moonwire"))
        .args(["serve", "--lapps"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(104));
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    assert!(
        sentence.contains("ws.json: `port` is \"5083\" and must be"),
        "{sentence}"
    );
}

const ECHO: &str = "
local echo = {}
echo.__index = echo
echo['onStart'] = function() print('echo::onStart') end
echo['onDisconnect'] = function(handler) end
echo['onShutdown'] = function() print('echo::onShutdown()') end
echo['onMessage'] = function(handler, opcode, message)
  return ws:send(handler, opcode, message)
end
return echo
";
