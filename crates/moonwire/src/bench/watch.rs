//! What a person who waits for a bench sees.

use std::time::Duration;

use moonwire_lab::{BenchEvent, BenchObserver};
use moonwire_report::Cell;

use crate::progress::LoadProgress;

/// Shows the events of a bench on stderr.
pub(super) struct Watch {
    progress: LoadProgress,
    quiet: bool,
}

impl Watch {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            progress: LoadProgress::new(quiet),
            quiet,
        }
    }

    pub(super) fn finish(&mut self) {
        self.progress.finish();
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.progress.above(line);
        }
    }
}

impl BenchObserver for Watch {
    fn on_event(&mut self, event: &BenchEvent<'_>) {
        match event {
            BenchEvent::LinkStands { kind, notes } => {
                self.say(&format!("link: {kind}"));
                for note in *notes {
                    self.say(&format!("  {note}"));
                }
            }
            BenchEvent::CellStarted { place, idle, left } => {
                let round_trip = idle.map_or_else(String::new, |idle| {
                    format!(
                        ", empty exchange {:.2} ms",
                        idle.round_trip.p50_ns as f64 / 1e6
                    )
                });
                let (number, count) = (place.index + 1, place.count);
                self.say(&format!("[{number}/{count}] {}{round_trip}", place.key));
                self.progress
                    .label(&format!("[{number}/{count}, {} left] ", clock(*left)));
            }
            BenchEvent::CellProgress {
                place,
                progress,
                left,
            } => {
                let (number, count) = (place.index + 1, place.count);
                self.progress
                    .relabel(&format!("[{number}/{count}, {} left] ", clock(*left)));
                self.progress.show(progress, &[]);
            }
            BenchEvent::CellEnded { place, cell } => {
                self.say(&format!(
                    "[{}/{}] {}",
                    place.index + 1,
                    place.count,
                    verdict(cell)
                ));
            }
            BenchEvent::CellDisturbed { place, cell } => {
                let taken = cell.generator.cpu_taken.unwrap_or(0.0) * 100.0;
                self.say(&format!(
                    "[{}/{}] {}; measured again: the host took processors away {taken:.1} % \
                     of the time",
                    place.index + 1,
                    place.count,
                    verdict(cell)
                ));
            }
            BenchEvent::Drawing => self.say("drawing the report"),
        }
    }
}

fn verdict(cell: &Cell) -> String {
    let assessment = &cell.assessment;
    let reason = assessment
        .reasons()
        .first()
        .map_or_else(String::new, |why| format!(": {why}"));
    format!("{}{reason}", assessment.verdict())
}

/// Minutes and seconds.
fn clock(left: Duration) -> String {
    format!("{}:{:02}", left.as_secs() / 60, left.as_secs() % 60)
}
