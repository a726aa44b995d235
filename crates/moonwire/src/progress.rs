//! What a waiting person sees, on stderr: a moving line on a terminal, a sparse log elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use moonwire_load::{Phase, Progress};

use crate::output;

/// The progress of one load run.
pub(crate) struct LoadProgress {
    bar: ProgressBar,
    /// True when stderr is no terminal and not asked to be quiet.
    log: bool,
    started: Instant,
    /// When the log last said something, and about which phase.
    said: Option<(Instant, Phase)>,
    /// Put before each line: the cell of a bench.
    label: String,
}

impl LoadProgress {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = ProgressBar::new(LENGTH);
        if quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_style(
            ProgressStyle::with_template("{msg}\n{wide_bar:.cyan/dim}")
                .expect("the template is a constant that parses"),
        );
        Self {
            log: !quiet && bar.is_hidden(),
            bar,
            started: Instant::now(),
            said: None,
            label: String::new(),
        }
    }

    /// Names the part of the work that follows.
    pub(crate) fn label(&mut self, label: &str) {
        label.clone_into(&mut self.label);
        self.said = None;
    }

    /// Changes the name while the same part goes on.
    pub(crate) fn relabel(&mut self, label: &str) {
        label.clone_into(&mut self.label);
    }

    /// Puts a line that stays above the moving one.
    pub(crate) fn above(&self, line: &str) {
        if self.log {
            output::remark(line);
        } else {
            self.bar.println(line);
        }
    }

    /// Shows where the run stands.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let line = format!("{}{}", self.label, sentence(progress));
        self.bar
            .set_position((share(progress) * LENGTH as f64) as u64);
        if self.log && self.due(progress.phase) {
            output::remark(&line);
        }
        self.bar.set_message(line);
    }

    /// Clears the moving line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub(crate) fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn due(&mut self, phase: Phase) -> bool {
        let now = Instant::now();
        let due = self
            .said
            .is_none_or(|(at, last)| last != phase || now.duration_since(at) >= LOG_GAP);
        if due {
            self.said = Some((now, phase));
        }
        due
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
            "{connected} connected, {sent} sent, {received} received{}{trouble}{}",
            latency(progress.response_ns),
            time_left(progress),
        ),
        Phase::Draining => format!("awaiting replies: {sent} sent, {received} received{trouble}"),
        Phase::Closing => format!("closing {connected} connections{trouble}"),
    }
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

/// Steps of the bar.
const LENGTH: u64 = 1000;
/// Pause between two lines of the log.
const LOG_GAP: Duration = Duration::from_secs(10);
