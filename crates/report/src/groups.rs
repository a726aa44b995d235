//! The cells of a run set side by side: one group for each combination of the parameters other
//! than the client count, one column for each client count.

use crate::cell::Cell;
use crate::contest::Contest;
use crate::format;
use crate::parameters::{Loop, Parameters};
use crate::run::Run;
use crate::verdict::Verdict;

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
        let (contest, parameters) = common(self.cells[0]);
        let key = parameters.key();
        let contest = contest.as_ref().map_or_else(String::new, Contest::key);
        contest + key.strip_prefix("c0_").unwrap_or(&key)
    }

    /// What the cells have in common, for a reader.
    pub(crate) fn title(&self) -> String {
        titled(self.cells[0])
    }
}

/// The column header of a cell.
pub(crate) fn clients(cell: &Cell) -> String {
    match cell.parameters.clients {
        1 => "1 client".to_owned(),
        count => format!("{} clients", format::count(count)),
    }
}

/// The name of a cell in a picture, which has no room for reasons: a verdict against it is beside
/// it, because an INVALID cell sets the axes that all share.
pub(crate) fn judged(cell: &Cell) -> String {
    match cell.assessment.verdict() {
        Verdict::Valid => clients(cell),
        verdict @ (Verdict::Suspect | Verdict::Invalid) => format!("{}, {verdict}", clients(cell)),
    }
}

/// What a cell has in common with others but for their clients, for a reader.
pub(crate) fn titled(cell: &Cell) -> String {
    let described = described(&cell.parameters);
    match &cell.contest {
        Some(contest) => format!("{}, round {}: {described}", contest.name(), contest.round),
        None => described,
    }
}

/// The parameters other than the client count as a phrase.
pub(crate) fn described(parameters: &Parameters) -> String {
    let duration = |ms: f64| format::round_number(&format::latency(ms * 1e3));
    let mut parts = Vec::new();
    let mut sending = String::new();
    if let (Some(batches), Some(batch)) = (parameters.batches, parameters.batch) {
        let (batches, batch) = (
            plural(batches, "batch", "es"),
            plural(batch, "message", "s"),
        );
        sending = format!("{batches} of {batch}");
    }
    if let Some(wait_ms) = parameters.wait_ms {
        sending = format!("{sending} every {}", duration(wait_ms));
    }
    match parameters.stagger_ms.filter(|_| parameters.is_bunched()) {
        Some(stagger_ms) if stagger_ms > 0.0 => {
            sending = format!("{sending} within {}", duration(stagger_ms));
        }
        Some(_) => sending.push_str(" at once"),
        None => {}
    }
    if !sending.is_empty() {
        parts.push(sending.trim_start().to_owned());
    }
    parts.extend(rate(parameters));
    parts.extend(closed_loop(parameters));
    match parameters.kind() {
        Loop::Idle => parts.push("held, nothing is sent".to_owned()),
        Loop::Open | Loop::Closed => parts.extend(messages(parameters)),
    }
    if let Some(silent) = parameters.silent {
        parts.push(format!("{} of them do not read", format::count(silent)));
    }
    if let Some(concurrency) = parameters.connect_concurrency {
        parts.push(format!("{} at once", plural(concurrency, "handshake", "s")));
    }
    if let Some(reconnect) = &parameters.reconnect {
        parts.push(format!("reconnect {reconnect}"));
    }
    match parameters.link_delay_ms {
        Some(delay_ms) if delay_ms > 0.0 => {
            parts.push(format!("{} link delay per direction", duration(delay_ms)));
        }
        Some(_) | None => {}
    }
    parts.extend(link_extras(parameters));
    parts.join(", ")
}

/// What the replies and the ends of connections have a say in.
fn closed_loop(parameters: &Parameters) -> Vec<String> {
    let duration = |ms: f64| format::round_number(&format::latency(ms * 1e3));
    let is_closed = parameters.kind() == Loop::Closed;
    let messages = parameters.messages_per_connection;
    let parts = [
        is_closed.then(|| "closed loop".to_owned()),
        parameters
            .think_ms
            .map(|ms| format!("{} after each reply", duration(ms))),
        parameters
            .in_flight
            .map(|count| format!("at most {count} in flight per connection")),
        messages.map(|count| {
            let messages = plural(count, "message", "s");
            format!("{messages} on each connection, which then closes")
        }),
        parameters
            .open_max
            .map(|count| format!("at most {} open at once", format::count(count))),
    ];
    parts.into_iter().flatten().collect()
}

/// What a message is, and what comes back.
fn messages(parameters: &Parameters) -> [String; 2] {
    let size = format::bytes(parameters.message_bytes as f64);
    let replies = match parameters.publishers {
        None => format!(
            "{} a message",
            plural(parameters.replies, "reply", "replies")
        ),
        Some(publishers) => format!(
            "{} heard by all",
            plural(publishers, "publisher", "publishers")
        ),
    };
    [format!("{} payload", format::round_number(&size)), replies]
}

/// Messages per second, and how that changes.
fn rate(parameters: &Parameters) -> Option<String> {
    let per_s = parameters
        .rate_per_s
        .map(|rate| format!("{} messages/s in total", format::rate(rate)));
    let Some(stages) = &parameters.stages else {
        return per_s;
    };
    let from = per_s.map_or_else(
        || "messages/s in total".to_owned(),
        |per_s| format!("{per_s}, then"),
    );
    Some(format!("{from} in stages {}", stages.replace(',', " ")))
}

/// What was asked of the link beside its delay.
fn link_extras(parameters: &Parameters) -> Vec<String> {
    let jitter = parameters.link_jitter_ms;
    let rate = parameters.link_rate_bit_per_s;
    let queue = parameters.link_queue_bytes;
    let extras = [
        jitter.map(|ms| {
            format!(
                "{} jitter",
                format::round_number(&format::latency(ms * 1e3))
            )
        }),
        parameters
            .link_loss
            .map(|loss| format!("{} loss", format::percent(loss))),
        rate.map(|bits| format!("{} bit/s", format::rate(bits as f64))),
        queue.map(|bytes| format!("{} link queue", format::bytes(bytes as f64))),
    ];
    extras.into_iter().flatten().collect()
}

/// `1 batch`, `20 batches`; the ending is what the plural adds, or all of an irregular plural.
pub(crate) fn plural(count: u64, noun: &str, ending: &str) -> String {
    let noun = match (count, ending.len() < noun.len()) {
        (1, _) => noun.to_owned(),
        (_, true) => format!("{noun}{ending}"),
        (_, false) => ending.to_owned(),
    };
    format!("{} {noun}", format::count(count))
}

/// Who was measured and under which load, but for the clients; nothing of what was found.
fn common(cell: &Cell) -> (Option<Contest>, Parameters) {
    let contest = cell.contest.as_ref().map(|contest| Contest {
        contestant: contest.contestant.clone(),
        tls: contest.tls,
        round: contest.round,
        nominal_bytes: contest.nominal_bytes,
        backend: contest.backend.clone(),
        ..Contest::default()
    });
    let parameters = Parameters {
        clients: 0,
        ..cell.parameters.clone()
    };
    (contest, parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_picture_names_the_verdict_against_a_cell() {
        let mut cell = sample::cell(1000, 1.0, 2, 1);
        assert_eq!(judged(&cell), "1,000 clients");
        cell.assessment.add(Verdict::Invalid, "late");
        assert_eq!(judged(&cell), "1,000 clients, INVALID");
    }

    #[test]
    fn cells_group_by_everything_but_their_clients() {
        let mut run = sample::bench(5, 500);
        let crate::run::Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        cells.reverse();
        cells[1].parameters.batch = Some(2);
        let groups = Group::all(&run);
        let counts = |group: &Group<'_>| -> Vec<u64> {
            group
                .cells
                .iter()
                .map(|cell| cell.parameters.clients)
                .collect()
        };
        assert_eq!(
            groups.iter().map(counts).collect::<Vec<_>>(),
            [vec![1000, 3000, 10_000], vec![5000]]
        );
        let mut bunched = run.cells()[0].parameters.clone();
        bunched.stagger_ms = Some(100.0);
        assert!(described(&bunched).starts_with("5 batches of 1 message every 1 s within 100 ms,"));
        bunched.stagger_ms = Some(0.0);
        assert!(described(&bunched).starts_with("5 batches of 1 message every 1 s at once,"));
        assert_eq!(groups[1].key(), "b2_n5_w1000_s1024_r4_l20ms");
        assert_eq!(
            groups[1].title(),
            "5 batches of 2 messages every 1 s, 1 KiB payload, 4 replies a message, \
             20 ms link delay per direction"
        );
    }

    #[test]
    fn loads_that_differ_have_names_that_differ() {
        let closed = Parameters {
            in_flight: Some(1),
            message_bytes: 64,
            replies: 1,
            ..Parameters::default()
        };
        let soak =
            "closed loop, at most 1 in flight per connection, 64 B payload, 1 reply a message";
        assert_eq!(described(&closed), soak);
        let shortlived = Parameters {
            messages_per_connection: Some(1),
            open_max: Some(100),
            think_ms: Some(50.0),
            ..closed.clone()
        };
        let told = "closed loop, 50 ms after each reply, at most 1 in flight per connection, \
                    1 message on each connection, which then closes, at most 100 open at once, \
                    64 B payload, 1 reply a message";
        assert_eq!(described(&shortlived), told);
        assert!(
            shortlived.key().contains("_o100_t50"),
            "{}",
            shortlived.key()
        );
        let idle = Parameters {
            in_flight: None,
            link_delay_ms: Some(20.0),
            ..closed
        };
        let told = "held, nothing is sent, 20 ms link delay per direction";
        assert_eq!(described(&idle), told);
    }

    #[test]
    fn stages_are_named_in_titles_and_files() {
        let mut parameters = Parameters {
            clients: 10,
            stages: Some("10s:1000,0s:5000".to_owned()),
            ..Parameters::default()
        };
        let title = described(&parameters);
        let begin = "messages/s in total in stages 10s:1000 0s:5000, ";
        assert!(title.starts_with(begin), "{title}");
        assert_eq!(parameters.key(), "c10_stages10s-1000-0s-5000_s0_r0");
        parameters.rate_per_s = Some(50.0);
        let title = described(&parameters);
        assert!(
            title.starts_with("50.0 messages/s in total, then in stages"),
            "{title}"
        );
        // A file name has 255 bytes.
        let long = |last: &str| {
            let text = format!("{}1s:{last}", "10s:1000,".repeat(31));
            let key = Parameters {
                stages: Some(text),
                ..parameters.clone()
            }
            .key();
            assert!(key.contains("_32stages-") && key.len() < 80, "{key}");
            key
        };
        assert_ne!(long("1"), long("2"));
    }
}
