//! `autobahn/expected.json`: how many cases there are, and each that is not OK, with the reason.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::settings::Role;
use super::verdicts::{Verdict, Verdicts};
use crate::place;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// Of the whole suite.
    cases: usize,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    case: String,
    roles: Vec<Role>,
    expected: Verdict,
    /// Why that is right.
    reason: String,
}

impl Expected {
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(place::root().join(PATH)).context(PATH)?;
        Self::parse(&text).context(PATH)
    }

    fn parse(text: &str) -> Result<Self> {
        let expected: Self = serde_json::from_str(text)?;
        for exception in &expected.exceptions {
            let case = &exception.case;
            ensure!(!exception.reason.is_empty(), "{case} has no reason");
            ensure!(exception.expected != ok(), "{case} is no exception");
        }
        Ok(expected)
    }

    /// Whether the suite has as many cases as it should.
    pub(crate) fn check_size(&self, cases: usize) -> Result<()> {
        ensure!(
            cases == self.cases,
            "the suite has {cases} cases, {PATH} says {}",
            self.cases
        );
        Ok(())
    }

    /// Of the chosen `cases`, each whose verdict is another one than expected.
    pub(crate) fn differences(
        &self,
        role: Role,
        cases: &[String],
        verdicts: &Verdicts,
    ) -> Vec<String> {
        let difference = |case: &String| {
            let exception = self
                .exceptions
                .iter()
                .find(|exception| exception.case == *case && exception.roles.contains(&role));
            let expected = exception.map_or_else(ok, |exception| exception.expected.clone());
            match verdicts.of(case) {
                Some(verdict) if *verdict == expected => None,
                Some(verdict) => Some(format!("{case}: {verdict}; expected {expected}")),
                None => Some(format!("{case}: no verdict; expected {expected}")),
            }
        };
        cases.iter().filter_map(difference).collect()
    }
}

fn ok() -> Verdict {
    Verdict {
        behavior: "OK".into(),
        behavior_close: "OK".into(),
    }
}

const PATH: &str = "autobahn/expected.json";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "cases": 3,
        "exceptions": [{
            "case": "7.1.6", "roles": ["server"],
            "expected": {"behavior": "INFORMATIONAL", "behaviorClose": "INFORMATIONAL"},
            "reason": "left open"
        }]
    }"#;

    fn differences(role: Role, index: &str) -> Vec<String> {
        let cases = ["1.1.1", "7.1.6"].map(String::from);
        let verdicts = Verdicts::parse(index, "/a".into()).unwrap();
        Expected::parse(TEXT)
            .unwrap()
            .differences(role, &cases, &verdicts)
    }

    #[test]
    fn a_difference_in_either_direction_is_found() {
        let index = r#"{"a": {
            "1.1.1": {"behavior": "OK", "behaviorClose": "OK"},
            "7.1.6": {"behavior": "INFORMATIONAL", "behaviorClose": "INFORMATIONAL"}
        }}"#;
        assert_eq!(differences(Role::Server, index), [""; 0]);
        let worse = "7.1.6: INFORMATIONAL, close INFORMATIONAL; expected OK, close OK";
        assert_eq!(differences(Role::Client, index), [worse]);
        let better = index.replace("INFORMATIONAL", "OK");
        assert_eq!(differences(Role::Server, &better).len(), 1);
        let missing = "1.1.1: no verdict; expected OK, close OK";
        assert_eq!(differences(Role::Server, "{}")[0], missing);
    }

    #[test]
    fn the_list_of_the_repository_is_sound() {
        let expected = Expected::read().unwrap();
        assert!(expected.check_size(517).is_ok());
        assert!(expected.check_size(516).is_err());
        assert!(Expected::parse(&TEXT.replace("left open", "")).is_err());
        assert!(Expected::parse(&TEXT.replace("INFORMATIONAL", "OK")).is_err());
    }
}
