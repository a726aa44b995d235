//! Rounds that were measured already, for a run that goes on where another one has ended.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::row::Row;
use crate::place;

/// Where the rounds of one row are kept, in a file each.
pub(super) struct Kept {
    file: PathBuf,
    rounds: Rounds,
}

#[derive(Deserialize, Serialize)]
struct Rounds {
    /// The program, the load and how long it lasted: those of another are no rounds of this run.
    made_by: String,
    rounds: Vec<Vec<Figures>>,
}

impl Kept {
    /// Those that there are, if the run is to go on; otherwise none. `made_by` says what else than
    /// the row a round depends on.
    pub(super) fn open(row: &Row, made_by: &str, goes_on: bool) -> Result<Self> {
        let folder = place::target()?.join("bench");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let file = folder.join(format!("{}.json", row.name));
        let made_by = format!("{made_by}, {:?}, {}", row.work, row.is_tls);
        let text = fs::read_to_string(&file).ok().filter(|_| goes_on);
        let kept: Option<Rounds> = match text {
            Some(text) => {
                Some(serde_json::from_str(&text).with_context(|| file.display().to_string())?)
            }
            None => None,
        };
        let is_usable = |kept: &Rounds| {
            let names = |round: &Vec<Figures>| {
                let names = round.iter().map(|figures| figures.name.clone());
                names.eq(row.contenders.iter().map(|kind| kind.name()))
            };
            kept.made_by == made_by && kept.rounds.iter().all(names)
        };
        let rounds = kept.filter(is_usable).unwrap_or(Rounds {
            made_by,
            rounds: Vec::new(),
        });
        Ok(Self { file, rounds })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.rounds.rounds.len()
    }

    /// Keeps one more.
    pub(super) fn add(&mut self, round: Vec<Figures>) -> Result<()> {
        self.rounds.rounds.push(round);
        let text = serde_json::to_string(&self.rounds)?;
        // Whole or not at all, also if the run ends here.
        let beside = self.file.with_extension("new");
        fs::write(&beside, text).with_context(|| beside.display().to_string())?;
        fs::rename(&beside, &self.file).with_context(|| self.file.display().to_string())
    }

    /// The first so many of them.
    pub(super) fn into_rounds(mut self, count: usize) -> Vec<Vec<Figures>> {
        self.rounds.rounds.truncate(count);
        self.rounds.rounds
    }
}
