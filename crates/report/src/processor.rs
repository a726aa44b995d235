//! What a processor of the machine was busy with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::format;

/// One processor over the sending phase. All shares are of that time, 0 to 1, and of all that
/// ran on
/// the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Processor {
    /// The kernel's number of it.
    pub number: u64,
    /// In programs.
    pub user: f64,
    /// In the kernel for them.
    pub system: f64,
    /// In interrupts, where most of the network's work is done.
    pub softirq: f64,
    /// Taken by the host.
    pub steal: f64,
    /// In programs that give way to all others, such as the lab's own that keeps it from halting.
    pub low_priority: f64,
}

impl Processor {
    /// The share that others could not have had.
    pub fn busy(&self) -> f64 {
        self.user + self.system + self.softirq + self.steal
    }
}

/// All of them in one line, each with whose it was; `None` where nothing is known.
pub(crate) fn sentence(cell: &Cell) -> Option<String> {
    let servers = cell.server.as_ref().map_or("", |server| &server.cores);
    let part = |one: &Processor| {
        let is_of = |cores: &str| list_holds(cores, one.number);
        let role = match (is_of(servers), is_of(&cell.generator.cores)) {
            (true, true) => " server and generator",
            (true, false) => " server",
            (false, true) => " generator",
            (false, false) => "",
        };
        let mut text = format!("{}{role} {}", one.number, format::percent(one.busy()));
        if one.steal >= STEAL_TOLD {
            text += &format!(" ({} taken by the host)", format::percent(one.steal));
        }
        text
    };
    let parts: Vec<String> = cell.processors.iter().map(part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether a list such as `0-2,5` has this number.
fn list_holds(list: &str, number: u64) -> bool {
    let mut parts = list.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u64>().ok()?..=last.parse::<u64>().ok()?)
    });
    parts.any(|range| range.contains(&number))
}

/// Less is not worth a word.
const STEAL_TOLD: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Server;

    #[test]
    fn each_processor_is_told_with_its_role() {
        let mut cell = Cell::default();
        assert_eq!(sentence(&cell), None);
        cell.generator.cores = "1-2".to_owned();
        cell.server = Some(Server {
            cores: "0,2".to_owned(),
            ..Server::default()
        });
        let processor = |number, user, steal| Processor {
            number,
            user,
            system: 0.1,
            softirq: 0.05,
            steal,
            low_priority: 0.3,
        };
        cell.processors = vec![
            processor(0, 0.4, 0.03),
            processor(1, 0.2, 0.0),
            processor(2, 0.0, 0.0),
            processor(3, 0.0, 0.0),
        ];
        let expected = "0 server 58.0 % (3.0 % taken by the host), 1 generator 35.0 %, \
                        2 server and generator 15.0 %, 3 15.0 %";
        assert_eq!(sentence(&cell).as_deref(), Some(expected));
    }

    #[test]
    fn lists_hold_their_ranges() {
        assert!(list_holds("0-2,5", 2) && list_holds("0-2,5", 5));
        assert!(!list_holds("0-2,5", 3) && !list_holds("", 0));
    }
}
