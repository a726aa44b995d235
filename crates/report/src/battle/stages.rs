//! What each contestant did in each stage of a load whose rate changes.

use super::Section;
use super::standing::Standing;
use crate::stage::Stage;
use crate::table::Table;
use crate::tables;

/// One row for each contestant in each stage; `None` where the rate does not change.
pub(super) fn section(title: &str, standings: &[Standing<'_>]) -> Option<Section> {
    let all: Vec<(&Standing<'_>, Vec<Stage>)> = standings
        .iter()
        .map(|standing| (standing, pooled(standing)))
        .collect();
    let count = all.iter().map(|(_, stages)| stages.len()).max()?;
    let header = ["stage", "messages/s", "contestant"];
    let mut table = Table::new(header.into_iter().chain(tables::STAGE_FIGURES));
    for index in 0..count {
        for (standing, stages) in &all {
            let Some(stage) = stages.get(index).filter(|it| it.length_s > 0.0) else {
                continue;
            };
            let row = [
                tables::stage_name(index, stage),
                tables::stage_rate(stage),
                standing.contestant().to_owned(),
            ];
            let figures = tables::stage_figures(stage, standing.ranked().count());
            table.row(row.into_iter().chain(figures));
        }
    }
    (!table.is_empty()).then(|| Section {
        title: format!("{title}: by stage, by the intended times of the messages"),
        table,
        sentences: Vec::new(),
    })
}

/// The stages of all ranked rounds together.
fn pooled(standing: &Standing<'_>) -> Vec<Stage> {
    let mut rounds = standing.ranked().map(|cell| &cell.stages);
    let mut all = rounds.next().cloned().unwrap_or_default();
    for stages in rounds {
        for (own, other) in all.iter_mut().zip(stages) {
            own.add(other);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn stages_of_all_rounds_are_one_and_jumps_have_no_row() {
        let stage = |length_s: f64, sent: u64, ms: u64| {
            let mut stage = Stage {
                length_s,
                from_per_s: 10.0,
                target_per_s: 50.0,
                unsent: Some(3),
                sent,
                received: sent,
                ..Stage::default()
            };
            stage.response.record(ms * 1_000_000);
            stage
        };
        let mut cells = [cell("a", 1, 1.0), cell("a", 2, 1.0)];
        cells[0].stages = vec![stage(2.0, 60, 1), stage(0.0, 0, 1), stage(1.0, 50, 4)];
        cells[1].stages = vec![stage(2.0, 60, 3), stage(0.0, 0, 1), stage(1.0, 48, 8)];
        let mut standing = Standing::new("a", &cells[0], 1);
        standing.add(&cells[1]);
        let text = section("field", &[standing]).unwrap().table.to_text();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|it| !it.is_empty())
                    .collect()
            })
            .collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(
            rows[1][..10],
            [
                "1: 2 s",
                "10.0 to 50.0",
                "a",
                "126",
                "120",
                "6",
                "120",
                "0",
                "30.0",
                "1.00 ms"
            ],
            "{text}"
        );
        // 98 messages in two rounds of one second.
        assert_eq!(rows[2][2..9], ["a", "104", "98", "6", "98", "0", "49.0"]);
        assert!(section("field", &[Standing::new("b", &cell("b", 1, 1.0), 1)]).is_none());
    }
}
