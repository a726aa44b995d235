//! The bench around a server that misbehaves: what it reports, and that it ends.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "the helpers are tests too"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use moonwire_lab::{BenchEnding, BenchError, BenchEvent, BenchObserver, BenchSpec, bench};
use moonwire_report::{Verdict, read_run};

/// A server that is a shell script.
fn program(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("server.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn spec(folder: &Path, script: &str) -> BenchSpec {
    BenchSpec {
        clients: vec![2, 3],
        wait: vec![Duration::from_millis(50)],
        batches: 2,
        link_delay: Duration::ZERO,
        drain: Duration::from_secs(1),
        out: Some(folder.join("out")),
        ..BenchSpec::new(program(folder, script))
    }
}

fn running() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

#[derive(Default)]
struct Ended(Vec<String>);

impl BenchObserver for Ended {
    fn on_event(&mut self, event: &BenchEvent<'_>) {
        if let BenchEvent::CellEnded { place, .. } = event {
            self.0.push(place.key.clone());
        }
    }
}

#[test]
fn a_server_that_does_not_start_ends_the_bench_with_what_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(folder.path(), "echo no luck today >&2; exit 3");
    let error = bench(&spec, &running(), &mut ()).unwrap_err();
    assert!(matches!(error, BenchError::Server(_)), "{error:?}");
    let sentence = error.to_string();
    assert!(
        sentence.contains("exit code 3") && sentence.contains("no luck today"),
        "{sentence}"
    );
}

#[test]
fn a_server_that_dies_during_the_run_is_a_reason_and_not_a_hang() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(
        folder.path(),
        "echo listening on nothing; echo I fell over; exit 3",
    );
    let started = Instant::now();
    let mut ended = Ended::default();
    let outcome = bench(&spec, &running(), &mut ended).unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(outcome.ending, BenchEnding::Completed);
    assert_eq!(
        ended.0,
        ["c2_b1_n2_w50_s1024_r4_l0ms", "c3_b1_n2_w50_s1024_r4_l0ms"]
    );
    assert_eq!(outcome.run.verdict(), Verdict::Invalid);
    for cell in outcome.run.cells() {
        let reasons = cell.assessment.reasons();
        assert!(
            reasons.iter().any(|reason| reason.contains("exit code 3")),
            "{reasons:?}"
        );
        let died = cell
            .server
            .as_ref()
            .and_then(|server| server.died.as_deref());
        assert!(
            died.is_some_and(|died| died.ends_with("I fell over")),
            "{died:?}"
        );
    }
    let read = read_run(&outcome.folder.join("run.json")).unwrap();
    assert_eq!(read, outcome.run);
    assert!(outcome.page.as_ref().is_some_and(|page| page.is_file()));
}

#[test]
fn a_bench_that_is_stopped_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(folder.path(), "echo listening; exec sleep 600");
    let outcome = bench(&spec, &Arc::new(AtomicBool::new(true)), &mut ()).unwrap();
    assert_eq!(outcome.ending, BenchEnding::Interrupted);
    assert!(outcome.run.cells().is_empty());
}

#[test]
fn a_folder_that_cannot_be_written_is_found_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let out = Some(PathBuf::from("/proc/nowhere"));
    let spec = BenchSpec {
        out,
        ..spec(folder.path(), "exit 1")
    };
    let error = bench(&spec, &running(), &mut ()).unwrap_err();
    assert!(error.to_string().contains("/proc/nowhere"), "{error}");
}
