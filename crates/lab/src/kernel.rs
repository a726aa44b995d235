//! Whether the kernel's settings let a load be made, before anything is started.
//!
//! What cannot work is an error; what would make figures those of a setting is a warning. Both say
//! which setting it is, its value, what is needed, and the command.

use std::collections::BTreeMap;

/// What a battle asks of the kernel, at most.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Needs {
    /// Connections that are open at once.
    pub(crate) connections: u64,
    /// Connections of a cell one after the other.
    pub(crate) connections_in_all: u64,
    /// Handshakes in flight at once.
    pub(crate) handshakes: u64,
    /// Bytes of messages that may be under way at once, in one direction.
    pub(crate) bytes_in_flight: u64,
    /// The servers behind each proxy; 0 where there is no proxy.
    pub(crate) backends: u64,
    /// Clients come from one address, over a link, and not from any of the loopback.
    pub(crate) is_over_link: bool,
}

/// What was found, as sentences.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Findings {
    /// The load cannot be made.
    pub(crate) errors: Vec<String>,
    /// The load can be made, and what comes of it is not the contestants' alone.
    pub(crate) warnings: Vec<String>,
}

/// The settings as they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel {
    /// The most descriptors that a process of this user may have.
    pub(crate) descriptors_max: u64,
    /// By their names, such as `net.core.somaxconn`.
    pub(crate) values: BTreeMap<String, String>,
}

impl Needs {
    /// Compares what is needed with what there is.
    pub(crate) fn check(&self, kernel: &Kernel) -> Findings {
        let mut findings = Findings::default();
        let errors = [
            self.descriptors(kernel),
            self.files(kernel),
            self.client_ports(kernel),
            self.proxy_ports(kernel),
        ];
        findings.errors.extend(errors.into_iter().flatten());
        let warnings = [
            self.accept_queue(kernel),
            self.half_open(kernel),
            self.waiting_ports(kernel),
            self.socket_memory(kernel),
            self.tracked(kernel),
        ];
        findings.warnings.extend(warnings.into_iter().flatten());
        findings
    }

    /// Ends of connections in one process: a proxy has two of each.
    fn ends(&self) -> u64 {
        self.connections * if self.backends > 0 { 2 } else { 1 }
    }

    fn descriptors(&self, kernel: &Kernel) -> Option<String> {
        let needed = self.ends() + SPARE_DESCRIPTORS;
        let allowed = kernel.descriptors_max;
        if allowed >= needed {
            return None;
        }
        let round = needed.next_power_of_two().max(65_536);
        let most = kernel.number("fs.nr_open").filter(|most| *most < round);
        let first = most.map_or_else(String::new, |most| {
            format!("`sysctl -w fs.nr_open={round}` (it is {most}) and ")
        });
        let whose = match self.backends {
            0 => "one process",
            _ => "a proxy, two for each connection",
        };
        Some(format!(
            "{needed} file descriptors are needed by {whose}, and a process may have {allowed} \
             (ulimit -Hn): run {first}`ulimit -n {round}` as root first, or make fewer connections"
        ))
    }

    fn files(&self, kernel: &Kernel) -> Option<String> {
        // The generator's, the contestant's and the backends'.
        let needed = self.connections + self.ends() + self.connections * self.backends.min(1);
        let most = kernel.number("fs.file-max")?;
        (most < needed + SPARE_DESCRIPTORS).then(|| {
            let wanted = needed.next_power_of_two().max(262_144);
            format!(
                "fs.file-max is {most} and all processes together need {needed} open files: run \
                 `sysctl -w fs.file-max={wanted}`, or make fewer connections"
            )
        })
    }

    /// On the loopback clients take as many addresses as they need.
    fn client_ports(&self, kernel: &Kernel) -> Option<String> {
        let ports = kernel.ports()?;
        let is_short = self.is_over_link && self.connections * 100 > ports * PORT_SHARE_PERCENT;
        is_short.then(|| {
            format!(
                "{}: clients come over the link from one address and need {} at once",
                kernel.told_ports(ports),
                self.connections
            ) + WIDEN
        })
    }

    fn proxy_ports(&self, kernel: &Kernel) -> Option<String> {
        let ports = kernel.ports()?;
        let each = self.connections.checked_div(self.backends)?;
        (each > ports).then(|| {
            let enough = self.connections.div_ceil(ports.max(1));
            format!(
                "{}: a proxy needs one for each of {each} connections to one server{WIDEN}, or \
                 give it {enough} servers with --backends",
                kernel.told_ports(ports)
            )
        })
    }

    fn accept_queue(&self, kernel: &Kernel) -> Option<String> {
        let most = kernel.number("net.core.somaxconn")?;
        // Contestants do not ask for more.
        let needed = self.handshakes.min(BACKLOG);
        (most < needed).then(|| {
            format!(
                "net.core.somaxconn is {most} and {} handshakes may be in flight at once: those \
                 that find the queue full are tried again a second later; run \
                 `sysctl -w net.core.somaxconn={BACKLOG}`",
                self.handshakes
            )
        })
    }

    /// With cookies the kernel answers those that do not fit, too.
    fn half_open(&self, kernel: &Kernel) -> Option<String> {
        let most = kernel.number("net.ipv4.tcp_max_syn_backlog")?;
        let has_cookies = kernel.number("net.ipv4.tcp_syncookies").unwrap_or(1) > 0;
        let needed = self.handshakes.min(BACKLOG);
        (!has_cookies && most < needed).then(|| {
            format!(
                "net.ipv4.tcp_max_syn_backlog is {most}, net.ipv4.tcp_syncookies is 0 and {} \
                 handshakes may be in flight at once: those that do not fit are tried again a \
                 second later; run `sysctl -w net.ipv4.tcp_max_syn_backlog={BACKLOG}`",
                self.handshakes
            )
        })
    }

    /// A port waits for a minute after its connection where its end closed first.
    fn waiting_ports(&self, kernel: &Kernel) -> Option<String> {
        let ports = kernel.ports()?;
        let reuse = kernel.number("net.ipv4.tcp_tw_reuse")?;
        // 2 is for the loopback only.
        let is_reused = reuse == 1 || (reuse == 2 && !self.is_over_link);
        let from_one = match (self.backends, self.is_over_link) {
            (0, false) => return None,
            (backends, true) => self.connections_in_all / backends.max(1),
            (backends, false) => self.connections_in_all / backends,
        };
        (!is_reused && from_one > ports).then(|| {
            format!(
                "net.ipv4.tcp_tw_reuse is {reuse} and {from_one} connections of a cell have \
                 {ports} ports: a port may have to wait for a minute after its connection; run \
                 `sysctl -w net.ipv4.tcp_tw_reuse=1`"
            )
        })
    }

    fn socket_memory(&self, kernel: &Kernel) -> Option<String> {
        let pages = kernel.values.get("net.ipv4.tcp_mem")?;
        let most = pages.split_whitespace().nth(2)?.parse::<u64>().ok()?;
        // In each direction, on each part of the way, in the worst case at one end of it.
        let parts = 2 * (1 + self.backends.min(1));
        let needed = (self.bytes_in_flight * parts).div_ceil(PAGE_BYTES);
        (most < needed).then(|| {
            let [low, middle, high] = [needed, needed + needed / 2, needed * 2];
            format!(
                "net.ipv4.tcp_mem is {pages} pages and messages in flight may take {needed}: \
                 sockets are kept short then; run \
                 `sysctl -w net.ipv4.tcp_mem=\"{low} {middle} {high}\"`"
            )
        })
    }

    /// Where connections are tracked, those beyond the table lose their packets.
    fn tracked(&self, kernel: &Kernel) -> Option<String> {
        let most = kernel.number("net.netfilter.nf_conntrack_max")?;
        let count = kernel
            .number("net.netfilter.nf_conntrack_count")
            .unwrap_or(0);
        let needed = self.connections_in_all.max(self.connections) * (1 + self.backends.min(1));
        (most < needed + count).then(|| {
            let wanted = (needed + count).next_power_of_two();
            format!(
                "net.netfilter.nf_conntrack_max is {most} and {} connections may be tracked: \
                 packets of those beyond it are dropped where there are rules; run \
                 `sysctl -w net.netfilter.nf_conntrack_max={wanted}`",
                needed + count
            )
        })
    }
}

impl Kernel {
    fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name)?.trim().parse().ok()
    }

    /// Ports of one address for connections to one other.
    fn ports(&self) -> Option<u64> {
        let range = self.values.get(PORT_RANGE)?;
        let mut ends = range.split_whitespace().map(str::parse::<u64>);
        let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
        (high + 1).checked_sub(low)
    }

    fn told_ports(&self, ports: u64) -> String {
        let range = self.values.get(PORT_RANGE).map_or("", String::as_str);
        format!("{PORT_RANGE} is {range}, {ports} ports")
    }
}

const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";
const WIDEN: &str = "; run `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`, make fewer \
                     connections";
/// Others than those of connections: files, listeners, timers.
const SPARE_DESCRIPTORS: u64 = 128;
/// As the generator has it: some are taken by others.
const PORT_SHARE_PERCENT: u64 = 90;
/// What contestants ask for where they can be told.
const BACKLOG: u64 = 4096;
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of a large machine, with some others.
    fn kernel(others: &[(&str, &str)]) -> Kernel {
        let defaults = [
            ("fs.nr_open", "1048576"),
            ("fs.file-max", "9223372036854775807"),
            ("net.core.somaxconn", "4096"),
            ("net.ipv4.tcp_max_syn_backlog", "512"),
            ("net.ipv4.tcp_syncookies", "1"),
            ("net.ipv4.ip_local_port_range", "32768 60999"),
            ("net.ipv4.tcp_tw_reuse", "2"),
            ("net.ipv4.tcp_mem", "287901 383868 575802"),
        ];
        let all = defaults.iter().chain(others);
        Kernel {
            descriptors_max: 1_048_576,
            values: all
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn needs(connections: u64) -> Needs {
        Needs {
            connections,
            connections_in_all: connections,
            handshakes: 256,
            bytes_in_flight: connections * 1024,
            ..Needs::default()
        }
    }

    #[test]
    fn defaults_are_enough_for_what_they_are_enough_for() {
        assert_eq!(needs(20_000).check(&kernel(&[])), Findings::default());
        // Settings that cannot be read are no objection.
        let unknown = Kernel {
            descriptors_max: u64::MAX,
            ..Kernel::default()
        };
        assert_eq!(needs(1 << 40).check(&unknown), Findings::default());
    }

    #[test]
    fn what_cannot_work_is_an_error_with_its_command() {
        let few = Kernel {
            descriptors_max: 20_000,
            ..kernel(&[])
        };
        let found = needs(20_000).check(&few).errors;
        assert!(found[0].contains("may have 20000 (ulimit -Hn): run `ulimit -n 65536`"));
        let found = needs(2_000_000).check(&kernel(&[])).errors;
        assert!(found[0].contains("`sysctl -w fs.nr_open=2097152` (it is 1048576) and `ulimit"));
        let proxied = Needs {
            backends: 1,
            ..needs(30_000)
        };
        let found = proxied.check(&kernel(&[])).errors;
        assert_eq!(
            found,
            [
                "net.ipv4.ip_local_port_range is 32768 60999, 28232 ports: a proxy needs one for \
                 each of 30000 connections to one server; run `sysctl -w \
                 net.ipv4.ip_local_port_range=\"1024 65535\"`, make fewer connections, or give it \
                 2 servers with --backends"
            ]
        );
        let spread = Needs {
            backends: 2,
            ..needs(30_000)
        };
        assert_eq!(spread.check(&kernel(&[])).errors, [""; 0]);
        let far = Needs {
            is_over_link: true,
            ..needs(26_000)
        };
        assert!(far.check(&kernel(&[])).errors[0].contains("over the link from one address"));
        let small = kernel(&[("fs.file-max", "10000")]);
        assert!(needs(9000).check(&small).errors[0].starts_with("fs.file-max is 10000"));
    }

    #[test]
    fn what_would_change_figures_is_a_warning_with_its_command() {
        let warned = |needs: Needs, others: &[(&str, &str)], part: &str| {
            let found = needs.check(&kernel(others));
            assert_eq!(found.errors, [""; 0]);
            assert_eq!(found.warnings.len(), 1, "{part}: {found:?}");
            assert!(found.warnings[0].contains(part), "{found:?}");
        };
        let somaxconn = ("net.core.somaxconn", "128");
        warned(
            needs(1000),
            &[somaxconn],
            "sysctl -w net.core.somaxconn=4096",
        );
        let no_cookies = [
            ("net.ipv4.tcp_syncookies", "0"),
            ("net.ipv4.tcp_max_syn_backlog", "128"),
        ];
        warned(needs(1000), &no_cookies, "tcp_max_syn_backlog=4096");
        let short_lived = Needs {
            connections_in_all: 50_000,
            is_over_link: true,
            ..needs(100)
        };
        warned(short_lived.clone(), &[], "net.ipv4.tcp_tw_reuse=1");
        let near = Needs {
            is_over_link: false,
            backends: 1,
            ..short_lived
        };
        assert_eq!(near.check(&kernel(&[])), Findings::default());
        warned(near, &[("net.ipv4.tcp_tw_reuse", "0")], "tcp_tw_reuse is 0");
        let large = Needs {
            bytes_in_flight: 8 << 30,
            ..needs(1000)
        };
        warned(large, &[], "sysctl -w net.ipv4.tcp_mem=");
        let tracked = ("net.netfilter.nf_conntrack_max", "8192");
        warned(needs(10_000), &[tracked], "nf_conntrack_max=16384");
    }
}
