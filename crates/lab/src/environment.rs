//! What a reader must know of the machine to judge a result.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use moonwire_report::{Environment, without_secrets};
use procfs::Current;

use crate::quota;

/// Describes this machine and this process, at the start of a run.
pub fn describe(command_line: Vec<String>, seed: u64) -> Environment {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let memory = procfs::Meminfo::current();
    Environment {
        cpu_model: cpu_model(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        memory_bytes: memory.map_or(0, |memory| memory.mem_total),
        kernel: line("/proc/sys/kernel/osrelease"),
        os: os_name(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        versions: BTreeMap::from([("moonwire".to_owned(), VERSION.to_owned())]),
        contestant_files: BTreeMap::new(),
        fd_limit: limit.current.unwrap_or(u64::MAX),
        sysctls: sysctls(),
        command_line: without_secrets(command_line),
        seed,
        started_at: rfc3339(SystemTime::now()),
        elapsed_s: 0.0,
        notes: notes(),
        servers: None,
    }
}

/// The kernel settings that shape results, as the calling thread's namespace has them.
pub(crate) fn sysctls() -> BTreeMap<String, String> {
    let read = |name: &&str| {
        let value = line(&format!("/proc/sys/{name}"));
        (!value.is_empty()).then(|| (name.replace('/', "."), value))
    };
    SYSCTLS.iter().filter_map(read).collect()
}

/// A time as RFC 3339 has it, in UTC, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const SYSCTLS: [&str; 21] = [
    "fs/file-max",
    "fs/nr_open",
    "net/core/somaxconn",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/netdev_max_backlog",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_syncookies",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_max_tw_buckets",
    "net/ipv4/tcp_fin_timeout",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_mem",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
    "vm/max_map_count",
];

fn cpu_model() -> String {
    let model = procfs::CpuInfo::current().ok().and_then(|info| {
        // Intel and AMD name the model; Arm gives numbers only.
        info.model_name(0).map(str::to_owned)
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn notes() -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    if let Ok(load) = procfs::LoadAverage::current() {
        let averages = format!("{} {} {}", load.one, load.five, load.fifteen);
        notes.insert("load_averages_at_start".to_owned(), averages);
    }
    if let Some(hypervisor) = hypervisor() {
        notes.insert("virtualisation".to_owned(), hypervisor);
    }
    let governor = line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if !governor.is_empty() {
        notes.insert("cpu_governor".to_owned(), governor);
    }
    if let Some(quota) = quota::cpu_quota() {
        notes.insert("cgroup_cpu_max".to_owned(), quota);
    }
    notes
}

/// The machine's maker as the firmware tells it, or that the processor runs under a hypervisor.
/// Whether the processors are those of a virtual machine.
pub(crate) fn is_virtual() -> bool {
    let info = procfs::CpuInfo::current().ok();
    info.and_then(|info| Some(info.flags(0)?.contains(&"hypervisor")))
        .unwrap_or(false)
}

fn hypervisor() -> Option<String> {
    if !is_virtual() {
        return None;
    }
    let vendor = line("/sys/class/dmi/id/sys_vendor");
    Some(match vendor.is_empty() {
        true => "a hypervisor".to_owned(),
        false => vendor,
    })
}

fn os_name(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or(std::env::consts::OS)
        .trim_matches('"')
        .to_owned()
}

/// A file's text with its white space made single spaces; empty if it cannot be read.
fn line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The date of a day number since 1970-01-01, by eras of 400 years that begin in March.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn the_operating_system_has_a_name() {
        assert_eq!(
            os_name("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(os_name(""), "linux");
    }

    #[test]
    fn this_machine_can_be_described() {
        let environment = describe(vec!["moonwire".to_owned()], 7);
        assert!(environment.cores > 0 && environment.memory_bytes > 1 << 20);
        assert!(!environment.kernel.is_empty() && environment.fd_limit > 0);
        assert_eq!(environment.seed, 7);
        assert!(
            environment
                .sysctls
                .contains_key("net.ipv4.tcp_congestion_control")
        );
        assert!(environment.started_at.ends_with('Z'));
    }
}
