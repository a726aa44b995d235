//! Contestants in the order of one metric, and what can be said of their differences.

use std::fmt;

use super::Rules;
use super::standing::Standing;
use crate::format;
use crate::groups::plural;
use crate::metric::Metric;
use crate::statistics::ranks::{self, Shift, median};
use crate::statistics::sample_size::{ROUNDS_MAX, RoundsNeeded, rounds_needed};
use crate::table::Table;

/// The contestants, best first.
pub(super) struct Ranking<'a> {
    metric: Metric,
    control: Option<&'a str>,
    /// The relative difference to tell.
    resolve: f64,
    places: Vec<Place<'a>>,
    /// What there is without any of them, which is a measure for all and cannot win.
    baseline: Option<Place<'a>>,
    /// Those that cannot be compared with others.
    unranked: Vec<(&'a str, Objection)>,
    /// Probability that an interval misses the true difference.
    alpha: f64,
}

/// One of them.
struct Place<'a> {
    contestant: &'a str,
    /// The logarithms of the values of its rounds: differences of them are ratios.
    logs: Vec<f64>,
    middle: f64,
}

/// Why one of them has no place.
enum Objection {
    /// So few rounds count.
    Few(usize),
    /// Differences are shares, and so many rounds have 0. To leave them out would be to choose.
    Zero(usize),
}

impl Objection {
    /// To the values of the rounds; `None` where they can be compared.
    fn to(values: &[f64]) -> Option<Self> {
        match values.iter().filter(|value| **value <= 0.0).count() {
            0 => (values.len() < ROUNDS_MIN).then_some(Self::Few(values.len())),
            zeros => Some(Self::Zero(zeros)),
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few(rounds) => write!(f, "not ranked: {}", plural(*rounds as u64, "round", "s")),
            Self::Zero(rounds) => {
                let have = if *rounds == 1 { "has" } else { "have" };
                let rounds = plural(*rounds as u64, "round", "s");
                write!(
                    f,
                    "not ranked: {rounds} {have} 0, of which there is no share"
                )
            }
        }
    }
}

impl<'a> Ranking<'a> {
    pub(super) fn of(standings: &[&Standing<'a>], metric: Metric, rules: &'a Rules) -> Self {
        let mut places = Vec::new();
        let mut unranked = Vec::new();
        for standing in standings {
            let mut values = standing.values(metric);
            values.sort_by(f64::total_cmp);
            if let Some(objection) = Objection::to(&values) {
                unranked.push((standing.contestant(), objection));
                continue;
            }
            places.push(Place {
                contestant: standing.contestant(),
                logs: values.iter().map(|value| value.ln()).collect(),
                middle: median(&values),
            });
        }
        places.sort_by(|one, other| match metric.is_better_high() {
            true => other.middle.total_cmp(&one.middle),
            false => one.middle.total_cmp(&other.middle),
        });
        let control = rules.control.as_deref();
        // Who is best is known only afterwards, so that any two may have become a row of the table:
        // each pair is held to its part of the level.
        let pairs = places.len() * places.len().saturating_sub(1) / 2;
        let absence = places
            .iter()
            .position(|place| control == Some(place.contestant) && place.contestant == ABSENCE);
        let baseline = absence.map(|index| places.remove(index));
        Self {
            metric,
            control,
            resolve: rules.resolve,
            places,
            baseline,
            unranked,
            alpha: ALPHA / pairs.max(1) as f64,
        }
    }

    pub(super) fn table(&self) -> Table {
        let control = self.control_place();
        let mut header = vec![
            "contestant".to_owned(),
            format!("median of rounds, {}", self.metric),
            "beside the best".to_owned(),
        ];
        header.extend(control.map(|control| format!("beside {}", control.contestant)));
        let mut table = Table::new(header);
        for (index, place) in self.places.iter().enumerate() {
            let mut row = vec![
                place.contestant.to_owned(),
                self.metric.quantity(place.middle),
                match index {
                    0 => "best".to_owned(),
                    _ => self.difference(&self.places[0], place),
                },
            ];
            row.extend(
                control.map(|control| match control.contestant == place.contestant {
                    true => format::dash(),
                    false => self.difference(control, place),
                }),
            );
            table.row(row);
        }
        if let Some(baseline) = &self.baseline {
            let middle = self.metric.quantity(baseline.middle);
            let name = baseline.contestant.to_owned();
            table.row([name, middle, format::dash(), format::dash()]);
        }
        for (contestant, objection) in &self.unranked {
            table.row([(*contestant).to_owned(), objection.to_string()]);
        }
        table
    }

    /// What a contestant is called in the end; `None` of one that is not here.
    pub(super) fn verdict(&self, contestant: &str) -> Option<String> {
        let mut unranked = self.unranked.iter();
        if let Some((_, objection)) = unranked.find(|(name, _)| *name == contestant) {
            return Some(objection.to_string());
        }
        if self
            .baseline
            .as_ref()
            .is_some_and(|it| it.contestant == contestant)
        {
            return Some("control".to_owned());
        }
        let place = self.places.iter().find(|it| it.contestant == contestant)?;
        let [best, others @ ..] = self.places.as_slice() else {
            return None;
        };
        if others.is_empty() {
            return Some("nobody to compare with".to_owned());
        }
        let rival = match best.contestant == contestant {
            true => self.rival(),
            false => Some(best).filter(|best| !self.is_told(place, best)),
        };
        Some(match (rival, best.contestant == contestant) {
            (None, true) => "winner".to_owned(),
            (None, false) => format!("behind {}", best.contestant),
            (Some(rival), _) => format!(
                "{} from {}{}",
                match self.shift(place, rival) {
                    Some(_) => "cannot be told apart",
                    None => "has too few rounds to be told",
                },
                rival.contestant,
                self.more_rounds(place, rival)
            ),
        })
    }

    /// Who is ahead of all others, and not by chance.
    pub(super) fn winner(&self) -> Option<&'a str> {
        let [best, _, ..] = self.places.as_slice() else {
            return None;
        };
        self.rival().is_none().then_some(best.contestant)
    }

    /// The first of those from which the best cannot be told apart; it need not be the next one.
    fn rival(&self) -> Option<&Place<'a>> {
        let (best, others) = self.places.split_first()?;
        others.iter().find(|other| !self.is_told(best, other))
    }

    fn is_told(&self, one: &Place<'_>, other: &Place<'_>) -> bool {
        self.shift(one, other).is_some_and(|it| it.is_told())
    }

    /// How many more rounds of these two would tell what is to be told.
    fn more_rounds(&self, one: &Place<'_>, other: &Place<'_>) -> String {
        let samples = [one.logs.as_slice(), other.logs.as_slice()];
        let fewest = samples.iter().map(|sample| sample.len()).min().unwrap_or(0) as u64;
        let resolve = format::percent(self.resolve);
        match rounds_needed(&samples, self.resolve.ln_1p(), self.alpha) {
            Some(RoundsNeeded::Beyond) => {
                let most = format::count(ROUNDS_MAX);
                format!(": more than {most} rounds would tell {resolve}")
            }
            Some(RoundsNeeded::Rounds(needed)) if needed > fewest => {
                let more = plural(needed - fewest, "more round", "s");
                format!(": {more} would tell {resolve}")
            }
            Some(RoundsNeeded::Rounds(_)) | None => format!(": {resolve} would be told"),
        }
    }

    /// The winner, or that there is none, and what would tell.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if let [best, second, ..] = self.places.as_slice() {
            let (name, next) = (best.contestant, second.contestant);
            let by = match self.metric.is_better_high() {
                true => "highest",
                false => "lowest",
            };
            let shift = self.shift(best, second);
            sentences.push(match (self.rival(), shift) {
                (None, Some(shift)) => format!(
                    "{name} has the {by} {}: {} beside {next}, the next.",
                    self.metric,
                    percent(-shift.estimate)
                ),
                (rival, _) => {
                    let rival = rival.unwrap_or(second);
                    let why = match self.shift(best, rival) {
                        Some(_) => "cannot be told apart",
                        None => "have too few rounds to be told apart among so many",
                    };
                    let rival = rival.contestant;
                    format!(
                        "There is no winner: {name} and {rival} {why} by {}.",
                        self.metric
                    )
                }
            });
        }
        sentences.extend(self.rounds_for_all().map(|needed| self.foresight(needed)));
        let is_few = |it: &(&str, Objection)| matches!(it.1, Objection::Few(_));
        if self.unranked.iter().any(is_few) {
            sentences.push(format!(
                "Fewer than {ROUNDS_MIN} ranked rounds say nothing of a difference."
            ));
        }
        sentences
    }

    /// What so many rounds would tell.
    fn foresight(&self, needed: RoundsNeeded) -> String {
        let resolve = format::percent(self.resolve);
        let RoundsNeeded::Rounds(needed) = needed else {
            let most = format::count(ROUNDS_MAX);
            return format!("A difference of {resolve} would take more than {most} rounds each.");
        };
        let fewest = self.places.iter().map(|it| it.logs.len()).min();
        let fewest = fewest.unwrap_or(0) as u64;
        let more = match needed.saturating_sub(fewest) {
            0 => "there are as many".to_owned(),
            more => format!("{} more than there are", format::count(more)),
        };
        format!(
            "A difference of {resolve} would be told in 19 of 20 contests with {} rounds each, \
             {more}.",
            format::count(needed)
        )
    }

    /// Rounds that tell any two of them, so those of the two that scatter most.
    fn rounds_for_all(&self) -> Option<RoundsNeeded> {
        let shift = self.resolve.ln_1p();
        let pairs = self.places.iter().enumerate().flat_map(|(index, one)| {
            let others = self.places[index + 1..].iter();
            others.map(move |other| [one.logs.as_slice(), other.logs.as_slice()])
        });
        let needed = pairs.map(|pair| rounds_needed(&pair, shift, self.alpha));
        needed.max().flatten()
    }

    fn control_place(&self) -> Option<&Place<'a>> {
        let control = self.control?;
        let mut all = self.places.iter().chain(&self.baseline);
        all.find(|it| it.contestant == control)
    }

    fn shift(&self, from: &Place<'_>, to: &Place<'_>) -> Option<Shift> {
        ranks::shift(&from.logs, &to.logs, self.alpha)
    }

    /// How `to` differs from `from`, for a reader.
    fn difference(&self, from: &Place<'_>, to: &Place<'_>) -> String {
        let Some(shift) = self.shift(from, to) else {
            return "too few rounds for this many contestants".to_owned();
        };
        let interval = format!("[{}, {}]", percent(shift.low), percent(shift.high));
        let delta = format::delta(shift.cliffs_delta());
        if !shift.is_told() {
            return format!("cannot be told apart {interval}, {delta}");
        }
        let is_more = shift.estimate > 0.0;
        let word = match is_more == self.metric.is_better_high() {
            true => "better",
            false => "worse",
        };
        // How often a round of the one is above a round of the other: the size of the effect.
        let ahead = if is_more {
            shift.superiority
        } else {
            1.0 - shift.superiority
        };
        format!(
            "{} {interval}, {delta}, {word} in {} of pairs",
            percent(shift.estimate),
            format::percent(ahead)
        )
    }
}

/// A difference of logarithms as a relative one.
fn percent(log_ratio: f64) -> String {
    format!("{:+.1} %", log_ratio.exp_m1() * 100.0)
}

/// The control that stands for the absence of a proxy.
const ABSENCE: &str = "none";

/// Of all pairs of a table together.
const ALPHA: f64 = 0.05;
/// With fewer there is no interval of 95 %.
pub(super) const ROUNDS_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::{Field, tests};
    use super::*;
    use crate::run::Content;

    fn with_ranking(contestants: &[(&str, f64)], rounds: u64, check: impl Fn(&Ranking<'_>)) {
        let run = tests::run(contestants, rounds);
        let rules = tests::rules();
        for field in Field::all(&run) {
            let standings = field.standings(1);
            let metric = Metric::parse("response.p50").unwrap();
            let standings: Vec<_> = standings.iter().collect();
            check(&Ranking::of(&standings, metric, &rules));
        }
    }

    #[test]
    fn the_control_has_a_column_of_its_own() {
        with_ranking(&[("none", 1.0), ("a", 2.0), ("b", 3.0)], 8, |ranking| {
            let text = ranking.table().to_text();
            assert!(text.contains("beside none"), "{text}");
            assert!(text.contains("+100") && text.contains("+200"), "{text}");
            let sentence = &ranking.sentences()[0];
            // What there is without any of them is no contestant.
            assert!(sentence.starts_with("a has the lowest"), "{sentence}");
            assert_eq!(ranking.winner(), Some("a"));
            assert_eq!(ranking.verdict("none").unwrap(), "control");
            assert_eq!(ranking.verdict("b").unwrap(), "behind a");
            assert_eq!(ranking.verdict("c"), None);
            assert!(
                text.contains("δ +1.00, worse in 100.0 % of pairs"),
                "{text}"
            );
        });
    }

    #[test]
    fn equal_contestants_have_no_winner_and_a_number_of_rounds() {
        with_ranking(&[("a", 2.0), ("b", 2.0)], 5, |ranking| {
            let sentences = ranking.sentences().join(" ");
            assert!(sentences.contains("There is no winner"), "{sentences}");
            assert!(sentences.contains("3.0 % would be told"), "{sentences}");
            let verdict = ranking.verdict("a").unwrap();
            assert!(
                verdict.starts_with("cannot be told apart from b"),
                "{verdict}"
            );
        });
    }

    #[test]
    fn the_level_is_shared_by_all_pairs_because_the_best_is_known_only_afterwards() {
        let five = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0)];
        // Ten pairs: of five rounds each even the most extreme order is too likely.
        with_ranking(&five, 5, |ranking| {
            let text = ranking.table().to_text();
            assert!(text.contains("too few rounds for this many"), "{text}");
            let verdict = ranking.verdict("e").unwrap();
            let expected = "has too few rounds to be told from a: 1 more round would tell 3.0 %";
            assert_eq!(verdict, expected);
            let sentences = ranking.sentences().join(" ");
            assert!(
                sentences.contains("with 6 rounds each, 1 more"),
                "{sentences}"
            );
        });
        with_ranking(&five, 6, |ranking| {
            assert_eq!(ranking.verdict("e").unwrap(), "behind a");
        });
    }

    #[test]
    fn rounds_of_0_are_not_left_out_but_set_apart() {
        let mut run = tests::run(&[("a", 2.0), ("b", 4.0)], 8);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            // All rounds of b lost something, and every second one of a.
            cell.messages.lost = [0, 9, 9, 9][index % 4];
        }
        let rules = tests::rules();
        let field = &Field::all(&run)[0];
        let standings = field.standings(1);
        let standings: Vec<_> = standings.iter().collect();
        let ranking = Ranking::of(&standings, Metric::parse("lost").unwrap(), &rules);
        let expected = "not ranked: 4 rounds have 0, of which there is no share";
        assert_eq!(ranking.verdict("a").unwrap(), expected);
        assert!(ranking.table().to_text().contains(expected));
        assert!(!ranking.sentences().join(" ").contains("Fewer than"));
    }

    #[test]
    fn who_cannot_be_told_from_one_of_all_has_not_won() {
        let mut run = tests::run(&[("a", 2.0), ("b", 2.2), ("c", 2.3)], 8);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        // The rounds of the last one are everywhere.
        let of_c = cells.iter_mut().filter(|cell| {
            let contest = cell.contest.as_ref();
            contest.is_some_and(|it| it.contestant == "c")
        });
        for (round, cell) in of_c.enumerate() {
            let mut response = crate::histogram::Histogram::new();
            let value_ns = [1.0, 2.35, 9.0, 2.3, 1.2, 8.0, 2.31, 1.5][round % 8] * 1e6;
            response.record_n(value_ns as u64, 1000);
            cell.latency.response = response;
        }
        let rules = tests::rules();
        let field = &Field::all(&run)[0];
        let standings = field.standings(1);
        let standings: Vec<_> = standings.iter().collect();
        let metric = Metric::parse("response.p50").unwrap();
        let ranking = Ranking::of(&standings, metric, &rules);
        assert_eq!(ranking.places[2].contestant, "c");
        assert_eq!(ranking.winner(), None);
        let verdict = ranking.verdict("a").unwrap();
        assert!(
            verdict.starts_with("cannot be told apart from c: "),
            "{verdict}"
        );
        assert!(verdict.contains("more rounds would tell"), "{verdict}");
        assert_eq!(ranking.verdict("b").unwrap(), "behind a");
        let sentence = &ranking.sentences()[0];
        assert!(
            sentence.contains("a and c cannot be told apart"),
            "{sentence}"
        );
    }

    #[test]
    fn too_few_rounds_are_not_ranked() {
        for (rounds, expected) in [(3, "not ranked: 3 rounds"), (1, "not ranked: 1 round")] {
            with_ranking(&[("a", 2.0), ("b", 4.0)], rounds, |ranking| {
                assert!(ranking.places.is_empty());
                let text = ranking.table().to_text();
                let cells: Vec<&str> = text.lines().last().unwrap().split("  ").collect();
                assert_eq!(cells.last().unwrap().trim(), expected, "{text}");
                assert_eq!(ranking.verdict("a").unwrap(), expected);
            });
        }
    }
}
