//! `cargo xtask fuzz --planted`: one defect for each target, put in on purpose. The target must
//! find it in under a minute; if it does not, its checks are worth nothing.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Fuzzer, TARGETS};
use crate::acceptance::table::Table;
use crate::acceptance::work_tree::{Defect, WorkTree};

/// What is planted, in the order of [`TARGETS`]. None shows without more than a few good bytes.
const PLANTED: [Defect; TARGETS.len()] = [
    Defect {
        name: "an end of a head is not seen across reads",
        path: "crates/proto/src/handshake/head.rs",
        right: "let fitting = input.get(..room).unwrap_or(input);",
        wrong: "let fitting = input.get(..room).unwrap_or(input);\n        self.line_ends = 0;",
    },
    Defect {
        name: "a larger window than was asked for is agreed to",
        path: "crates/proto/src/deflate/negotiation.rs",
        right: "|| server_bits > asked.window_bits {",
        wrong: "|| server_bits < WindowBits::MIN {",
    },
    Defect {
        name: "the rest of a character that a read cut is not expected",
        path: "crates/proto/src/payload.rs",
        right: "self.unchecked_bytes -= error.valid_up_to();",
        wrong: "self.unchecked_bytes = 0;",
    },
    Defect {
        name: "the agreed window is left by one bit",
        path: "crates/proto/src/deflate/codec.rs",
        right: "bits => (bits.get(), Strategy::Default),",
        wrong: "bits => ((bits.get() + 1).min(15), Strategy::Default),",
    },
    Defect {
        name: "1015 is accepted as a close code",
        path: "crates/proto/src/close.rs",
        right: "1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),",
        wrong: "1000..=1003 | 1007..=1015 | 3000..=4999 => Some(Self(code)),",
    },
    Defect {
        name: "the beginning of a record is forgotten",
        path: "crates/net/src/tls/records.rs",
        right: "self.keep(rest.to_vec())?;",
        wrong: "self.keep(Vec::new())?;",
    },
    Defect {
        name: "frames that came with the request are lost",
        path: "crates/net/src/session/receive.rs",
        right: "input.taken += taken;\n                let request: &Request",
        wrong: "input.take_all();\n                let request: &Request",
    },
];

/// Plants each defect in a copy of the committed state and fuzzes it.
pub(crate) fn planted() -> Result<ExitCode> {
    let mut table = Table::new("Fuzzing: planted defects are found");
    let tree = WorkTree::new("planted")?;
    for (target, defect) in TARGETS.into_iter().zip(&PLANTED) {
        let planted = tree.plant(defect)?;
        let fuzzer = Fuzzer::build(tree.path(), target)?;
        let outcome = fuzzer.run(FOUND_IN_MAX, &tree.path().join("fuzz/found"))?;
        let is_built = outcome.log.contains("INFO: Seed:");
        ensure!(is_built, "the fuzzer did not run: {}", outcome.log);
        let figure = match outcome.findings {
            0 => format!("not found in {} executions", outcome.executions),
            _ => format!("found in {:.0} s", outcome.elapsed.as_secs_f64()),
        };
        table.line(
            format!("{target}: {}", defect.name),
            figure,
            format!("found in {} s", FOUND_IN_MAX.as_secs()),
            outcome.findings > 0 && outcome.elapsed <= FOUND_IN_MAX,
        );
        drop(planted);
    }
    Ok(table.finish())
}

const FOUND_IN_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place;

    #[test]
    fn each_defect_has_its_place() {
        for defect in &PLANTED {
            defect.find(place::root()).unwrap();
        }
    }
}
