//! `deploy/nginx` with the real nginx: a proxy and two servers, each a container but for the image,
//! with namespaces of its own for network, mounts and processes. A bridge joins the servers to
//! nginx, as Docker's internal network does, and the client sees nginx only.
//!
//! Namespaces live as long as the processes in them, so that nothing is left behind. Only root may
//! make them.
#![allow(clippy::print_stdout, reason = "a test that is left out says why")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Outcome, certificate, root, run};
use crate::{installed, node};

/// Of nginx in the network of its clients.
const NGINX: &str = "10.91.1.1";
/// Of the servers in the network behind it.
const SERVERS: [&str; 2] = ["10.91.2.11", "10.91.2.12"];

#[test]
fn nginx_serves_a_page_and_websockets_on_one_port() {
    let place = tempfile::tempdir().unwrap();
    let Some(site) = Site::start(place.path()) else {
        return;
    };
    the_page_is_there_and_nothing_else(&site);
    both_servers_answer_through_nginx_only(&site);
    the_page_sends_and_shows_replies(&site);
}

/// Over both versions of TLS, and no other.
fn the_page_is_there_and_nothing_else(site: &Site) {
    let page = fs::read_to_string(root().join("deploy/nginx/page/index.html")).unwrap();
    for version in ["1.2", "1.3"] {
        let offered = ["--tls-max", version, "--fail", "--include"];
        let outcome = site.curl(&offered, &format!("https://{NGINX}/"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.ends_with(&page), "{outcome:?}");
        let kind = "Content-Type: text/html; charset=utf-8";
        assert!(outcome.stdout.contains(kind), "{outcome:?}");
    }
    let outcome = site.curl(&["--tls-max", "1.1"], &format!("https://{NGINX}/"));
    assert_eq!(outcome.code, Some(35), "{outcome:?}");
    assert!(site.comes_back_with_its_session());
    // /health is answered by moonwire, and the certificate's key lies beside the page.
    for path in [
        "nothing",
        "index.html",
        "health",
        "echo/more",
        "tls/key.pem",
    ] {
        assert_eq!(site.status(path), "404", "{path}");
    }
    assert_eq!(site.status("echo"), "426", "no upgrade was asked for");
}

fn both_servers_answer_through_nginx_only(site: &Site) {
    let url = format!("wss://{NGINX}/echo");
    let mut load = site.client(env!("CARGO_BIN_EXE_moonwire"));
    load.args(["load", &url, "-c", "10", "--messages", "500", "--json", "-"]);
    let outcome = run(load.arg("--cacert").arg(site.certificate()));
    // 98 is said of the latencies where the machine is busy; what counts here is in the counts.
    assert!(matches!(outcome.code, Some(0 | 98)), "{outcome:?}");
    let result: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let messages = &result["messages"];
    let counts = ["sent", "received", "lost", "corrupt"].map(|name| messages[name].as_u64());
    assert_eq!(
        counts,
        [Some(500), Some(500), Some(0), Some(0)],
        "{messages}"
    );
    for server in SERVERS {
        let url = format!("http://{server}:5083/metrics");
        let metrics = run(site
            .nginx
            .command("curl")
            .args(["--silent", "--fail", &url]));
        assert_eq!(metrics.code, Some(0), "{metrics:?}");
        let name = "moonwire_messages_in_total{";
        let line = metrics.stdout.lines().find(|it| it.starts_with(name));
        let (_, count) = line.and_then(|line| line.rsplit_once(' ')).unwrap();
        assert!(count.parse::<u64>().unwrap() > 0, "{server} had nothing");
        // The client sends what is for others to nginx's machine, which does not pass it on.
        let direct = site.curl(&["--connect-timeout", "1"], &url);
        assert_eq!(direct.code, Some(28), "{direct:?}");
    }
}

fn the_page_sends_and_shows_replies(site: &Site) {
    let mut browser = site.client("node");
    browser.envs(
        node("")
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    browser.arg(root().join("crates/moonwire/tests/peers/nginx_page.js"));
    let outcome = run(browser.arg(format!("https://{NGINX}/")));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stdout.trim(), r#"["Grüße 🌙","once more"]"#);
}

/// All of it; ended when dropped, the client's network last.
struct Site {
    folder: String,
    servers: Vec<Container>,
    nginx: Container,
    client: Container,
}

impl Site {
    /// `None` where this user may not make namespaces, which has been said.
    fn start(place: &Path) -> Option<Self> {
        let folder = place.to_str().unwrap().to_owned();
        let deploy = root().join("deploy/nginx");
        let copied = ["nginx.conf", "moonwire.toml", "page/index.html"];
        fs::create_dir_all(place.join("tls")).unwrap();
        fs::create_dir_all(place.join("page")).unwrap();
        for file in copied {
            fs::copy(deploy.join(file), place.join(file)).unwrap();
        }
        certificate::write_for(&place.join("tls"), &[NGINX]);
        // What Docker's name server says of a service with two containers.
        let hosts = SERVERS
            .map(|address| format!("{address} moonwire\n"))
            .concat();
        fs::write(place.join("hosts"), hosts).unwrap();

        let client = Container::prepare("true", &["sleep", "infinity"])?;
        let moonwire = [env!("CARGO_BIN_EXE_moonwire"), "serve", "--config"];
        let configuration = format!("{folder}/moonwire.toml");
        let serve = [moonwire.as_slice(), &[&configuration]].concat();
        let mut servers = Vec::new();
        for _ in SERVERS {
            servers.push(Container::prepare("true", &serve)?);
        }
        let program = installed("contestants/nginx/nginx");
        let file = format!("{folder}/nginx.conf");
        let start = [program.to_str().unwrap(), "-p", &folder, "-c", &file];
        // Its image has a user for its workers; here the temporary folder is root's.
        let start = [start.as_slice(), &["-g", "daemon off; user root;"]].concat();
        let nginx = Container::prepare(&format!("mount --bind {folder}/hosts /etc/hosts"), &start)?;

        nginx.ip(
            "link add front type veth peer name front netns",
            Some(&client),
        );
        nginx.ip(&format!("address add {NGINX}/24 dev front"), None);
        nginx.ip("link set front up", None);
        client.ip("address add 10.91.1.2/24 dev front", None);
        client.ip("link set front up", None);
        client.ip(&format!("route add default via {NGINX}"), None);
        nginx.ip("link add back type bridge", None);
        nginx.ip("address add 10.91.2.1/24 dev back", None);
        nginx.ip("link set back up", None);
        for (index, (server, address)) in servers.iter().zip(SERVERS).enumerate() {
            let pair = format!("link add back{index} type veth peer name back netns");
            nginx.ip(&pair, Some(server));
            nginx.ip(&format!("link set back{index} master back up"), None);
            server.ip(&format!("address add {address}/24 dev back"), None);
            server.ip("link set back up", None);
        }
        let mut site = Self {
            folder,
            servers,
            nginx,
            client,
        };
        let containers = site
            .servers
            .iter_mut()
            .chain([&mut site.nginx, &mut site.client]);
        containers.for_each(Container::begin);
        site.await_ready();
        Some(site)
    }

    /// nginx takes the servers as they are when a request comes, so that they have to be there.
    fn await_ready(&self) {
        let patient = [
            "--silent",
            "--retry",
            "200",
            "--retry-all-errors",
            "--retry-delay",
            "0",
        ];
        for server in SERVERS {
            let url = format!("http://{server}:5083/health");
            let outcome = run(self
                .nginx
                .command("curl")
                .args(patient)
                .args(["--fail", &url]));
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
        }
        let outcome = self.curl(&patient, &format!("https://{NGINX}/"));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }

    fn certificate(&self) -> String {
        format!("{}/tls/certificate.pem", self.folder)
    }

    /// A program in the network of the clients.
    fn client(&self, program: &str) -> Command {
        self.client.command(program)
    }

    /// A request of a client that trusts the certificate and nothing else.
    fn curl(&self, arguments: &[&str], url: &str) -> Outcome {
        let mut curl = self.client("curl");
        curl.args(["--silent", "--noproxy", "*", "--http1.1"])
            .args(arguments);
        run(curl.arg("--cacert").arg(self.certificate()).arg(url))
    }

    /// Whether a second connection takes up the session of the first one.
    fn comes_back_with_its_session(&self) -> bool {
        let [connect, session] = [format!("{NGINX}:443"), format!("{}/session", self.folder)];
        let mut said = String::new();
        for direction in ["-sess_out", "-sess_in"] {
            let mut openssl = self.client("openssl");
            openssl.args(["s_client", "-tls1_2", "-connect", &connect]);
            openssl.args([direction, &session]).stdin(Stdio::null());
            said = run(&mut openssl).stdout;
        }
        said.contains("Reused, TLSv1.2")
    }

    fn status(&self, path: &str) -> String {
        let print = ["--output", "/dev/null", "--write-out", "%{http_code}"];
        self.curl(&print, &format!("https://{NGINX}/{path}")).stdout
    }
}

/// A process in namespaces of its own, which end with it, and it with this value.
struct Container {
    child: Child,
}

impl Container {
    /// Makes the namespaces; the program begins when it is told to. `None` where this user may not
    /// make them.
    fn prepare(before: &str, program: &[&str]) -> Option<Self> {
        let script =
            format!("ip link set lo up && {before} && echo made && read begin && exec \"$@\"");
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        unshare
            .args(["sh", "-c", &script, "container"])
            .args(program);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = unshare.spawn().unwrap();
        let mut container = Self { child };
        let mut said = [0; 5];
        let output = container.child.stdout.as_mut().expect("piped above");
        match std::io::Read::read_exact(output, &mut said) {
            Ok(()) => Some(container),
            Err(_) if !rustix::process::geteuid().is_root() => {
                println!("skipped: namespaces are for root");
                None
            }
            Err(error) => panic!("{program:?} has no namespaces: {error}"),
        }
    }

    fn begin(&mut self) {
        let input = self.child.stdin.as_mut().expect("piped above");
        input.write_all(b"begin\n").unwrap();
    }

    /// Another program in its network.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.child.id().to_string(), "--net", program]);
        command
    }

    /// `ip` there; the last word is the process of another one.
    fn ip(&self, words: &str, other: Option<&Self>) {
        let mut ip = self.command("ip");
        ip.args(words.split(' '))
            .args(other.map(|it| it.child.id().to_string()));
        let outcome = run(&mut ip);
        assert_eq!(outcome.code, Some(0), "{words}: {outcome:?}");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The kernel kills the first process of its namespace then, and with that all in it.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
