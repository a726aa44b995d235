//! The cells of a run set side by side: one group for each combination of the parameters other
//! than the client count, one column for each client count.

use crate::cell::{Cell, Parameters};
use crate::format;
use crate::run::Run;

/// Cells that differ only in their number of clients, fewest first.
pub(crate) struct Group<'a> {
    pub(crate) cells: Vec<&'a Cell>,
}

impl<'a> Group<'a> {
    /// The groups of a run in the order of their first cells.
    pub(crate) fn all(run: &'a Run) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for cell in run.cells() {
            let same = |group: &&mut Self| common(group.cells[0]) == common(cell);
            match groups.iter_mut().find(same) {
                Some(group) => group.cells.push(cell),
                None => groups.push(Self { cells: vec![cell] }),
            }
        }
        for group in &mut groups {
            group.cells.sort_by_key(|cell| cell.parameters.clients);
        }
        groups
    }

    /// What the cells have in common, for file names.
    pub(crate) fn key(&self) -> String {
        let key = common(self.cells[0]).key();
        key.strip_prefix("c0_").unwrap_or(&key).to_owned()
    }

    /// What the cells have in common, for a reader.
    pub(crate) fn title(&self) -> String {
        described(&self.cells[0].parameters)
    }
}

/// The column header of a cell.
pub(crate) fn clients(cell: &Cell) -> String {
    match cell.parameters.clients {
        1 => "1 client".to_owned(),
        count => format!("{} clients", format::count(count)),
    }
}

/// The parameters other than the client count as a phrase.
pub(crate) fn described(parameters: &Parameters) -> String {
    let mut parts = Vec::new();
    let mut plural = |count: u64, noun: &str, ending: &str| {
        let ending = if count == 1 { "" } else { ending };
        parts.push(format!("{} {noun}{ending}", format::count(count)));
    };
    if let Some(batches) = parameters.batches {
        plural(batches, "batch", "es");
    }
    if let Some(batch) = parameters.batch {
        plural(batch, "message", "s a batch");
        let last = parts.pop().unwrap_or_default();
        parts.push(if batch == 1 {
            "batches of 1 message".to_owned()
        } else {
            last
        });
    }
    if let Some(wait_ms) = parameters.wait_ms {
        parts.push(format!("every {}", format::latency(wait_ms * 1e3)));
    }
    if let Some(rate) = parameters.rate_per_s {
        parts.push(format!("{} messages/s in total", format::rate(rate)));
    }
    if let Some(in_flight) = parameters.in_flight {
        parts.push(format!("at most {in_flight} in flight per connection"));
    }
    parts.push(format!(
        "{} payload",
        format::bytes(parameters.message_bytes as f64)
    ));
    parts.push(match parameters.replies {
        1 => "1 reply a message".to_owned(),
        replies => format!("{replies} replies a message"),
    });
    match parameters.link_delay_ms {
        Some(delay_ms) if delay_ms > 0.0 => {
            parts.push(format!(
                "{} link delay per direction",
                format::latency(delay_ms * 1e3)
            ));
        }
        Some(_) | None => {}
    }
    parts.join(", ")
}

fn common(cell: &Cell) -> Parameters {
    Parameters {
        clients: 0,
        ..cell.parameters.clone()
    }
}
