//! What the figures were measured on.

use std::process::Command;

use serde::Serialize;

/// The machine and the code.
#[derive(Debug, Serialize)]
pub(super) struct Environment {
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) kernel: String,
    pub(super) commit: String,
    /// Of the last minute, before anything was started.
    pub(super) load_average: String,
    pub(super) command: String,
    pub(super) date: String,
}

pub(super) fn describe() -> Environment {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let cpu = model
        .unwrap_or("unknown")
        .trim_start_matches([' ', '\t', ':']);
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Environment {
        cpu: cpu.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: said("uname", &["-r"]),
        commit: said("git", &["describe", "--always", "--dirty"]),
        load_average: loads.split(' ').next().unwrap_or_default().to_owned(),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        date: said("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
    }
}

/// What a program prints, or nothing.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(crate::place::root())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}
