//! Contestants that may be ranked together: connections of all of them were the same over TLS.
//!
//! Another version, cipher suite, group, key or kind of handshake is other work, whatever the
//! contestant is.

use super::standing::Standing;
use crate::tls::{self, TermsOf};

/// Contestants whose connections agreed on the same.
pub(super) struct Circle<'s, 'a> {
    pub(super) members: Vec<&'s Standing<'a>>,
    terms: TermsOf,
}

/// All of them, those with the most contestants first; of two of a size the one with the control,
/// or else with the first name. Who has no ranked round is with the first, who are told that it is
/// not ranked.
pub(super) fn circles<'s, 'a>(
    standings: &'s [Standing<'a>],
    control: Option<&str>,
) -> Vec<Circle<'s, 'a>> {
    let mut circles: Vec<Circle<'s, 'a>> = Vec::new();
    let mut without = Vec::new();
    for standing in standings {
        let terms = standing.terms();
        if standing.ranked().next().is_none() {
            without.push(standing);
            continue;
        }
        match circles.iter_mut().find(|circle| circle.terms == terms) {
            Some(circle) => circle.members.push(standing),
            None => circles.push(Circle {
                members: vec![standing],
                terms,
            }),
        }
    }
    // Stable: of equal ones the order of the names stays.
    circles.sort_by_key(|circle| {
        let mut members = circle.members.iter();
        let has_control = members.any(|it| Some(it.contestant()) == control);
        std::cmp::Reverse((circle.members.len(), has_control))
    });
    match circles.first_mut() {
        Some(first) => first.members.extend(without),
        None if without.is_empty() => {}
        None => circles.push(Circle {
            members: without,
            terms: TermsOf::new(),
        }),
    }
    circles
}

impl Circle<'_, '_> {
    /// What its connections agreed on, for a reader.
    pub(super) fn terms(&self) -> String {
        tls::all_terms(&self.terms)
    }

    /// With whom the members of `other` cannot be compared, and why.
    pub(super) fn objection_to(&self, other: &Self) -> String {
        let (theirs, ours) = tls::difference(&other.terms, &self.terms);
        let known = |terms: String| match terms.is_empty() {
            true => "what is not known".to_owned(),
            false => terms,
        };
        format!(
            "{} cannot be compared with {}: their connections agreed on {}, and not on {}.",
            other.names(),
            self.names(),
            known(theirs),
            known(ours)
        )
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(|it| it.contestant()).collect();
        match names.as_slice() {
            [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
            names => names.concat(),
        }
    }
}
