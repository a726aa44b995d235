//! A battle in a few lines: who is ahead, and by what.

use super::ranking::Ranking;
use super::{Field, Verdicts, circle, names, verdicts};
use crate::capacity;
use crate::metric::Metric;
use crate::pull_request::ROWS_MAX;
use crate::run::Run;
use crate::table::Table;

/// What each contestant is called under each load, with a title each; none of a search.
pub(crate) fn all_verdicts(run: &Run) -> Vec<(String, Verdicts)> {
    let Some(rules) = run.rules.as_ref().filter(|_| run.capacities.is_empty()) else {
        return Vec::new();
    };
    let of_field = |field: &Field<'_>| {
        let title = format!("{}: who is ahead by {}", field.title(), rules.primary);
        let standings = field.standings(run.environment.seed);
        (title, verdicts(&standings, rules))
    };
    Field::all(run).iter().map(of_field).collect()
}

/// Who is ahead under each load, or that nobody is; a sentence each.
pub(crate) fn winners(run: &Run) -> Vec<String> {
    let Some(rules) = run.rules.as_ref().filter(|_| run.capacities.is_empty()) else {
        return Vec::new();
    };
    let Some(primary) = Metric::parse(&rules.primary) else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    let fields = Field::all(run);
    for (field, name) in fields.iter().zip(names(&fields)).take(LOADS_MAX) {
        let standings = field.standings(run.environment.seed);
        if standings.len() < 2 {
            continue;
        }
        let circles = circle::circles(&standings, rules.control.as_deref());
        let ranking = circles
            .first()
            .map(|it| Ranking::of(&it.members, primary, rules));
        let said = ranking.and_then(|it| it.sentences().into_iter().next());
        sentences.extend(said.map(|said| format!("{name}: {said}")));
    }
    sentences
}

/// The metric that decides, a row for each contestant and load; `None` of a run that is no battle.
pub(crate) fn primary_table(run: &Run) -> Option<Table> {
    let rules = run.rules.as_ref()?;
    if !run.capacities.is_empty() {
        return Some(capacity::found(run).table);
    }
    let primary = Metric::parse(&rules.primary)?;
    let head = primary.to_string();
    let fields = Field::all(run);
    let seed = run.environment.seed;
    let is_contest = fields.iter().any(|it| it.standings(seed).len() > 1);
    let header = ["contestant", "load", "rounds", head.as_str()].into_iter();
    let mut table = Table::new(header.chain(is_contest.then_some("verdict")));
    let mut rows = 0;
    for (field, load) in fields.iter().zip(names(&fields)) {
        let standings = field.standings(run.environment.seed);
        let verdicts = verdicts(&standings, rules);
        for (standing, (name, verdict)) in standings.iter().zip(verdicts) {
            rows += 1;
            if rows <= ROWS_MAX {
                let quantity = standing.quantity(primary);
                let row = [name, load.clone(), standing.rounds(), quantity].into_iter();
                table.row(row.chain(is_contest.then_some(verdict)));
            }
        }
    }
    if rows > ROWS_MAX {
        table.row([format!("and {} more", rows - ROWS_MAX)]);
    }
    Some(table)
}

/// More sentences are no summary.
const LOADS_MAX: usize = 6;
