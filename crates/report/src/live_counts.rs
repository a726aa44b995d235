//! Whether what a server counts while it is loaded agrees with what the generator counts.

use crate::cell::Cell;
use crate::format;
use crate::interval::Interval;

/// Counts of both sides up to some second.
#[derive(Clone, Copy, Default)]
struct Both {
    sent: u64,
    server_received: u64,
    received: u64,
    server_sent: u64,
}

/// How far the two sides are apart.
#[derive(Clone, Copy, PartialEq)]
enum Agreement {
    Same,
    /// By messages that were on their way.
    InFlight,
    /// By more.
    Beyond,
}

/// Whether the server was asked.
pub(crate) fn is_told(cell: &Cell) -> bool {
    cell.intervals.iter().any(|it| it.server_received.is_some())
}

/// Both counts and what to make of them; `None` where the server was not asked.
pub(crate) fn sentence(cell: &Cell) -> Option<String> {
    let last = totals(cell)?;
    let counts = format!(
        "the server counted {} messages in and {} out",
        format::count(last.server_received),
        format::count(last.server_sent)
    );
    let ours = format!(
        "{} and {}",
        format::count(last.sent),
        format::count(last.received)
    );
    Some(match agreement(cell, &last) {
        Agreement::Same => format!("{counts} while it was loaded, as we did"),
        Agreement::InFlight => {
            format!("{counts} while it was loaded, and we {ours}: no more apart than was in flight")
        }
        Agreement::Beyond => {
            format!("{counts} while it was loaded, and we {ours}: more apart than was in flight")
        }
    })
}

/// The sentence, where the two sides are further apart than what was on its way, at the end or
/// in any second.
pub fn live_objection(cell: &Cell) -> Option<String> {
    let last = totals(cell)?;
    if agreement(cell, &last) == Agreement::Beyond {
        return sentence(cell);
    }
    let (at, apart) = furthest(cell)?;
    Some(format!(
        "after {:.0} s the server had counted {} messages more or less than we had, beyond what \
         was in flight and a second's messages",
        at.start_s + at.length_s,
        format::count(apart)
    ))
}

fn totals(cell: &Cell) -> Option<Both> {
    is_told(cell).then(|| {
        let mut sum = Both::default();
        cell.intervals.iter().for_each(|it| sum.add(it));
        sum
    })
}

impl Both {
    fn add(&mut self, interval: &Interval) {
        self.sent += interval.sent;
        self.received += interval.received;
        self.server_received += interval.server_received.unwrap_or(0);
        self.server_sent += interval.server_sent.unwrap_or(0);
    }

    /// By how much the sides are apart in the wrong direction or beyond what is in flight.
    fn beyond(&self, in_flight: u64, replies: u64) -> u64 {
        let outside = |from: u64, to: u64, in_flight: u64| match from.checked_sub(to) {
            Some(on_the_way) => on_the_way.saturating_sub(in_flight),
            None => to - from,
        };
        let inwards = outside(self.sent, self.server_received, in_flight);
        let outwards = outside(self.server_sent, self.received, in_flight * replies);
        inwards.max(outwards)
    }
}

fn agreement(cell: &Cell, last: &Both) -> Agreement {
    if (last.sent, last.received) == (last.server_received, last.server_sent) {
        return Agreement::Same;
    }
    let in_flight = cell.intervals.last().map_or(0, |it| it.in_flight);
    match last.beyond(in_flight, replies(cell)) {
        0 => Agreement::InFlight,
        _ => Agreement::Beyond,
    }
}

/// The second at whose end the sides are furthest apart, if that is more than what was in flight
/// and a second's messages: the server is asked at other moments than the seconds end.
fn furthest(cell: &Cell) -> Option<(&Interval, u64)> {
    let mut so_far = Both::default();
    let apart = cell.intervals.iter().enumerate().map(|(index, it)| {
        so_far.add(it);
        let near = index.saturating_sub(1)..(index + 2).min(cell.intervals.len());
        let near = &cell.intervals[near];
        let slack = near.iter().map(|it| it.sent.max(it.received)).max();
        let beyond = so_far.beyond(it.in_flight, replies(cell));
        (it, beyond.saturating_sub(slack.unwrap_or(0)))
    });
    let furthest = apart.max_by_key(|(_, beyond)| *beyond)?;
    (furthest.1 > 0).then_some(furthest)
}

fn replies(cell: &Cell) -> u64 {
    cell.parameters.replies.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds of a thousand messages, of which the server says this.
    fn cell(server: impl Fn(u64) -> u64) -> Cell {
        let second = |at: u64| Interval {
            start_s: at as f64,
            length_s: 1.0,
            sent: 1000,
            received: 1000,
            in_flight: 10,
            server_received: Some(server(at)),
            server_sent: Some(server(at)),
            ..Interval::default()
        };
        Cell {
            intervals: (0..10).map(second).collect(),
            ..Cell::default()
        }
    }

    #[test]
    fn two_sides_that_agree_are_said_to() {
        let same = cell(|_| 1000);
        assert_eq!(
            sentence(&same).unwrap(),
            "the server counted 10,000 messages in and 10,000 out while it was loaded, as we did"
        );
        // It is asked between the ends of two seconds.
        let early = cell(|at| if at % 2 == 0 { 1300 } else { 700 });
        assert_eq!(live_objection(&early), None);
        assert_eq!(sentence(&Cell::default()), None);
    }

    #[test]
    fn what_is_beyond_the_messages_in_flight_is_an_objection() {
        let lacks = cell(|at| if at == 9 { 980 } else { 1000 });
        let said = live_objection(&lacks).unwrap();
        assert!(said.ends_with("more apart than was in flight"), "{said}");
        let mut on_the_way = cell(|_| 1000);
        on_the_way.intervals[9].server_received = Some(995);
        assert_eq!(live_objection(&on_the_way), None);
        assert!(
            sentence(&on_the_way)
                .unwrap()
                .ends_with("no more apart than was in flight")
        );
        let stands_still = cell(|at| match at {
            2..=5 => 0,
            6 => 5000,
            _ => 1000,
        });
        let said = live_objection(&stands_still).unwrap();
        assert!(
            said.starts_with("after 6 s the server had counted 3,000"),
            "{said}"
        );
    }
}
