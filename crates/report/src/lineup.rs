//! The contestants of a run, in the order and the colours that all its pictures have.

use std::collections::BTreeSet;

use crate::palette::{CONTESTANTS, CONTROL, contestant_color};
use crate::run::Run;

/// The control first, the others by their names.
pub(crate) struct Lineup<'a> {
    control: Option<&'a str>,
    others: Vec<&'a str>,
}

impl<'a> Lineup<'a> {
    /// Those that have a cell.
    pub(crate) fn of(run: &'a Run) -> Self {
        let contests = run.cells().iter().filter_map(|cell| cell.contest.as_ref());
        let mut names: BTreeSet<&str> = contests.map(|it| it.contestant.as_str()).collect();
        let control = run.rules.as_ref().and_then(|it| it.control.as_deref());
        let control = control.filter(|control| names.remove(control));
        Self {
            control,
            others: names.into_iter().collect(),
        }
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.control.into_iter().chain(self.others.iter().copied())
    }

    /// The name as pictures have it.
    pub(crate) fn label(&self, name: &str) -> String {
        match self.is_control(name) {
            true => format!("{name} (control)"),
            false => name.to_owned(),
        }
    }

    /// Whether the others are compared with it.
    pub(crate) fn is_control(&self, name: &str) -> bool {
        self.control == Some(name)
    }

    pub(crate) fn color(&self, name: &str) -> &'static str {
        match self.is_control(name) {
            true => CONTROL,
            false => contestant_color(self.index(name)),
        }
    }

    /// Whether another contestant has its colour, so that its lines are dotted.
    pub(crate) fn is_repeated(&self, name: &str) -> bool {
        !self.is_control(name) && self.index(name) >= CONTESTANTS.len()
    }

    fn index(&self, name: &str) -> usize {
        let found = self.others.iter().position(|other| *other == name);
        found.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battle::tests::run;

    #[test]
    fn the_control_is_first_and_no_two_of_eight_look_the_same() {
        let names = ["b", "a", "none", "c", "d", "e", "f", "g", "h"];
        let run = run(&names.map(|name| (name, 1.0)), 1);
        let lineup = Lineup::of(&run);
        let ordered: Vec<&str> = lineup.names().collect();
        assert_eq!(ordered[..3], ["none", "a", "b"]);
        assert_eq!(lineup.label("none"), "none (control)");
        let looks = ordered
            .iter()
            .map(|name| (lineup.color(name), lineup.is_repeated(name)));
        assert_eq!(looks.collect::<BTreeSet<_>>().len(), names.len());
    }
}
