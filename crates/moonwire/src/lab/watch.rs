//! What a person who waits for a contest sees.

use moonwire_lab::{CellPlace, DoublingEvent};

use crate::progress::LoadProgress;

/// Shows the events of a contest on stderr.
pub(super) struct Watch {
    progress: LoadProgress,
    quiet: bool,
    /// The cell that the moving line is about.
    number: usize,
}

impl Watch {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            progress: LoadProgress::new(quiet),
            quiet,
            number: 0,
        }
    }

    pub(super) fn finish(&mut self) {
        self.progress.finish();
    }

    pub(super) fn on_event(&mut self, event: &DoublingEvent<'_>) {
        match event {
            DoublingEvent::BoutStarted { name } => self.say(name),
            DoublingEvent::Progress { place, progress } => {
                if self.number != place.number {
                    self.number = place.number;
                    self.progress.label(&format!("{} ", label(place)));
                }
                self.progress.show(progress, &[]);
            }
            DoublingEvent::CellEnded { place, cell } => {
                let (rate, verdict) = (cell.rate.received_per_s, cell.assessment.verdict());
                let line = format!("{} {rate:.0} round trips/s, {verdict}", label(place));
                self.say(&line);
            }
        }
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.progress.above(line);
        }
    }
}

fn label(place: &CellPlace) -> String {
    let CellPlace {
        number,
        count,
        size,
    } = place;
    format!("[{number}/{count}, {size} B]")
}
