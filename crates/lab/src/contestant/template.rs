//! What stands for the names in braces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use super::certificate;
use super::file::{ALSO_MAX, names_in_braces};
use crate::link::LinkEnd;

/// What the templates of a contestant are filled with.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The moonwire that is a contestant: this program, normally.
    pub(crate) program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub(crate) peers: PathBuf,
    /// Where the contestant's files were written.
    pub(crate) folder: PathBuf,
    /// In PEM.
    pub(crate) certificate: PathBuf,
    /// In PEM.
    pub(crate) key: PathBuf,
    /// Processors of the machine.
    pub(crate) processors: usize,
    /// Workers that the contestant is to have.
    pub(crate) workers: u32,
    /// Replies of an amplifying service to each message.
    pub(crate) replies: u32,
    /// The end of a link that its processes live at.
    pub(crate) at: LinkEnd,
    /// The address that clients, or whoever stands in front of it, connect to.
    pub(crate) address: IpAddr,
    /// Where it is to listen: first the contestant itself, then its other processes.
    pub(crate) ports: Ports,
    /// Where the servers behind a proxy are: addresses with ports.
    pub(crate) backends: Vec<String>,
    /// What a client is to do; unused by others.
    pub(crate) errand: Errand,
}

/// A port for each process that a contestant may have.
pub(crate) type Ports = [u16; 1 + ALSO_MAX];

/// What a client is to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errand {
    /// Where an echo is.
    pub(crate) url: String,
    /// How many connections it opens.
    pub(crate) connections: u32,
    /// Messages per second of all connections together.
    pub(crate) rate: u32,
    /// How long it sends, seconds.
    pub(crate) duration_s: u32,
    /// Size of a message.
    pub(crate) message_bytes: u32,
    /// `echo`, or `amplify` for the JSON that is answered several times.
    pub(crate) payload: &'static str,
}

impl Surroundings {
    /// Those of a lab that keeps its files in `folder`.
    pub(crate) fn new(program: &Path, peers: &Path, folder: &Path) -> Self {
        let (certificate, key) = certificate::paths(folder);
        Self {
            program: program.to_owned(),
            peers: peers.to_owned(),
            folder: folder.to_owned(),
            certificate,
            key,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            workers: 1,
            replies: REPLIES,
            at: LinkEnd::default(),
            address: Ipv4Addr::LOCALHOST.into(),
            ports: Ports::default(),
            backends: Vec::new(),
            errand: Errand::default(),
        }
    }

    /// Puts values in the place of their names in braces; a variant's `own` first, as they may name
    /// others. `id` is the contestant's.
    pub(super) fn fill(&self, text: &str, id: &str, own: &BTreeMap<String, String>) -> String {
        let mut filled = text.to_owned();
        for (name, value) in own {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        for (name, value) in self.values(id) {
            filled = filled.replace(&format!("{{{name}}}"), &value);
        }
        filled
    }

    /// Fills a file. A line that names `{backend}`, or a part of it, stands once for each of them.
    pub(super) fn fill_file(&self, text: &str, id: &str, own: &BTreeMap<String, String>) -> String {
        let mut lines = String::new();
        for line in text.split_inclusive('\n') {
            let is_of_backend = |name: &str| name == "backend" || name.starts_with("backend_");
            if !names_in_braces(line).any(is_of_backend) {
                lines.push_str(line);
                continue;
            }
            for (index, backend) in self.backends.iter().enumerate() {
                let (host, port) = backend.rsplit_once(':').unwrap_or((backend, ""));
                let line = line.replace("{backend}", backend);
                let line = line.replace("{backend_host}", host);
                let line = line.replace("{backend_port}", port);
                lines.push_str(&line.replace("{backend_index}", &(index + 1).to_string()));
            }
        }
        self.fill(&lines, id, own)
    }

    fn values(&self, id: &str) -> [(&'static str, String); 23] {
        let path = |path: &Path| path.display().to_string();
        let installed = self.peers.join("contestants").join(id);
        let combined = certificate::combined(&self.certificate);
        let Errand {
            url,
            connections,
            rate,
            duration_s,
            message_bytes,
            payload,
        } = &self.errand;
        [
            ("moonwire", path(&self.program)),
            ("installed", path(&installed)),
            ("modules", path(&installed.join("node_modules"))),
            ("folder", path(&self.folder)),
            ("certificate", path(&self.certificate)),
            ("key", path(&self.key)),
            ("combined", path(&combined)),
            ("processors", self.processors.to_string()),
            ("workers", self.workers.to_string()),
            ("replies", self.replies.to_string()),
            ("address", self.address.to_string()),
            ("port", self.ports[0].to_string()),
            ("port2", self.ports[1].to_string()),
            ("port3", self.ports[2].to_string()),
            ("port4", self.ports[3].to_string()),
            (
                "backend",
                self.backends.first().cloned().unwrap_or_default(),
            ),
            ("backends", self.backends.join(",")),
            ("url", url.clone()),
            ("connections", connections.to_string()),
            ("rate", rate.to_string()),
            ("duration_s", duration_s.to_string()),
            ("message_bytes", message_bytes.to_string()),
            ("payload", (*payload).to_owned()),
        ]
    }
}

/// The names that every contestant may use.
pub(super) fn names() -> Vec<&'static str> {
    let nowhere = Path::new("");
    let values = Surroundings::new(nowhere, nowhere, nowhere).values("");
    values.into_iter().map(|(name, _)| name).collect()
}

/// Ports nobody listens on at this end of a link, each another one.
pub(super) fn free_ports_at(end: &LinkEnd) -> std::io::Result<Ports> {
    end.run(free_ports)?
}

fn free_ports() -> std::io::Result<Ports> {
    let mut ports = Ports::default();
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        *port = listener.local_addr()?.port();
        // Held until all are chosen, so that none is chosen twice.
        held.push(listener);
    }
    Ok(ports)
}

/// As the generator expects them when nothing else is said.
const REPLIES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        let folder = Path::new("/results");
        let mut around = Surroundings::new(Path::new("/bin/moonwire"), Path::new("/peers"), folder);
        around.ports = [5083, 5084, 5085, 5086];
        around.backends = vec!["127.0.0.1:7001".into(), "127.0.0.1:7002".into()];
        around
    }

    #[test]
    fn a_line_that_names_the_backend_stands_once_for_each() {
        let text =
            "listen {port};\nserver s{backend_index} {backend}; # {backend_port}\nend {\n}\n";
        assert_eq!(
            around().fill_file(text, "x", &BTreeMap::new()),
            "listen 5083;\nserver s1 127.0.0.1:7001; # 7001\n\
             server s2 127.0.0.1:7002; # 7002\nend {\n}\n"
        );
    }

    #[test]
    fn values_of_a_variant_come_first_and_may_name_others() {
        let own = BTreeMap::from([
            ("threads".to_owned(), "{workers}".to_owned()),
            ("port2".to_owned(), "own".to_owned()),
        ]);
        let filled = around().fill("{threads} {port2} {port3} {backends} {other}", "x", &own);
        assert_eq!(filled, "1 own 5085 127.0.0.1:7001,127.0.0.1:7002 {other}");
        let filled = around().fill("{installed} {modules} {combined}", "x", &own);
        let expected = "/peers/contestants/x /peers/contestants/x/node_modules \
                        /results/certificate_and_key.pem";
        assert_eq!(filled, expected);
    }

    #[test]
    fn free_ports_are_different_ones() {
        let ports = free_ports().unwrap();
        let different: std::collections::BTreeSet<u16> = ports.into_iter().collect();
        assert_eq!(different.len(), ports.len());
    }
}
