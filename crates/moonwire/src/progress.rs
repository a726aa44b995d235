//! What a waiting person sees, on stderr: a moving view on a terminal, a sparse log elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use moonwire_lab::Usage;
use moonwire_load::{Phase, Progress};

use crate::live::LiveView;
use crate::output;

/// The progress of one load run.
pub(crate) struct LoadProgress {
    view: View,
    started: Instant,
    /// Put before each line: the cell of a bench.
    label: String,
}

/// Where it is shown.
enum View {
    /// Nobody wants to see it.
    None,
    /// A terminal.
    Live(Box<LiveView>),
    /// A file or a pipe, and when it was told about which phase.
    Log(Option<(Instant, Phase)>),
}

impl View {
    fn open(quiet: bool) -> Self {
        if quiet {
            return Self::None;
        }
        // A terminal that cannot be drawn on can be written to.
        let live = std::io::stderr().is_terminal().then(LiveView::open);
        match live {
            Some(Ok(live)) => Self::Live(Box::new(live)),
            Some(Err(_)) | None => Self::Log(None),
        }
    }
}

impl LoadProgress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            view: View::open(quiet),
            started: Instant::now(),
            label: String::new(),
        }
    }

    /// Names the part of the work that follows.
    pub(crate) fn label(&mut self, label: &str) {
        label.clone_into(&mut self.label);
        match &mut self.view {
            View::None => {}
            View::Live(live) => live.begin(),
            View::Log(said) => *said = None,
        }
    }

    /// Changes the name while the same part goes on.
    pub(crate) fn relabel(&mut self, label: &str) {
        label.clone_into(&mut self.label);
    }

    /// Puts a line that stays above the moving ones.
    pub(crate) fn above(&mut self, line: &str) {
        match &mut self.view {
            View::None => {}
            View::Live(live) => live.above(line),
            View::Log(_) => output::remark(line),
        }
    }

    /// Shows where the run stands, and what the processes under its load use, if that is known.
    pub(crate) fn show(&mut self, progress: &Progress, usage: &[Usage]) {
        let line = format!("{}{}", self.label, sentence(progress));
        match &mut self.view {
            View::None => {}
            View::Live(live) => live.show(&line, share(progress), progress, usage),
            View::Log(said) => {
                let now = Instant::now();
                let is_due = said.is_none_or(|(at, last)| {
                    last != progress.phase || now.duration_since(at) >= LOG_GAP
                });
                if is_due {
                    *said = Some((now, progress.phase));
                    output::remark(&line);
                }
            }
        }
    }

    /// Takes the moving lines away.
    pub(crate) fn finish(&mut self) {
        if let View::Live(live) = &mut self.view {
            live.close();
        }
    }

    pub(crate) fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

fn sentence(progress: &Progress) -> String {
    let Progress {
        connected,
        connections,
        sent,
        received,
        errors,
        ..
    } = progress;
    let trouble = if *errors > 0 {
        format!(", {errors} errors")
    } else {
        String::new()
    };
    match progress.phase {
        Phase::Connecting => format!("connecting {connected}/{connections}{trouble}"),
        Phase::Sending => format!(
            "{connected} connected{}, {sent} sent, {received} received{}{trouble}{}",
            made(progress),
            latency(progress.response_ns),
            time_left(progress),
        ),
        Phase::Draining => format!("awaiting replies: {sent} sent, {received} received{trouble}"),
        Phase::Closing => format!("closing {connected} connections{trouble}"),
    }
}

/// How many connections were made, where each makes room for the next one.
fn made(progress: &Progress) -> String {
    let of = progress.connections;
    progress
        .made
        .map_or_else(String::new, |made| format!(", {made} of {of} made"))
}

fn latency(response_ns: Option<(u64, u64)>) -> String {
    response_ns.map_or_else(String::new, |(p50, p99)| {
        format!(
            ", response p50 {:.2} ms p99 {:.2} ms",
            p50 as f64 / 1e6,
            p99 as f64 / 1e6
        )
    })
}

fn time_left(progress: &Progress) -> String {
    progress
        .sending_planned
        .map_or_else(String::new, |planned| {
            format!(
                ", {} s left",
                planned.saturating_sub(progress.sending).as_secs()
            )
        })
}

/// How much of the sending is done, 0 to 1.
fn share(progress: &Progress) -> f64 {
    let by_count = progress
        .planned
        .map(|planned| progress.sent as f64 / planned.max(1) as f64);
    let by_time = progress
        .sending_planned
        .map(|planned| progress.sending.as_secs_f64() / planned.as_secs_f64().max(1e-9));
    by_time.or(by_count).unwrap_or(0.0).min(1.0)
}

/// Pause between two lines of the log.
const LOG_GAP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_make_room_are_counted() {
        let mut progress = Progress {
            phase: Phase::Sending,
            elapsed: Duration::from_secs(3),
            sending: Duration::from_secs(3),
            sending_planned: None,
            connected: 7,
            made: None,
            connections: 30_000,
            sent: 1201,
            planned: Some(30_000),
            received: 1200,
            errors: 0,
            response_ns: None,
            response_steps: Vec::new(),
        };
        let expected = "7 connected, 1201 sent, 1200 received";
        assert_eq!(sentence(&progress), expected);
        progress.made = Some(1201);
        let expected = "7 connected, 1201 of 30000 made, 1201 sent, 1200 received";
        assert_eq!(sentence(&progress), expected);
    }
}
