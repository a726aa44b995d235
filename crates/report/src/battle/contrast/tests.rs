use super::super::tests;
use super::*;
use crate::run::Content;
use crate::tls::tests::tls;

#[test]
fn what_is_slower_over_the_rounds_is_told_and_what_is_not_is_not() {
    let before = tests::run(&[("a", 2.0), ("b", 3.0)], 8);
    let after = tests::run(&[("a", 2.1), ("b", 3.0)], 8);
    let found = contrast(&before, &after).unwrap();
    let beyond = |bound| found.regressions_beyond(bound).join("; ");
    assert!(
        beyond(0.02).starts_with("a: 100 connections"),
        "{}",
        beyond(0.02)
    );
    assert!(!beyond(0.02).contains("b: "));
    assert_eq!(beyond(0.2), "");
    let back = contrast(&after, &before).unwrap();
    assert_eq!(back.regressions_beyond(0.0), [""; 0]);
    let text = found.text(Style::default());
    assert!(
        text.contains("worse") && text.contains("cannot be told apart"),
        "{text}"
    );
    assert!(
        text.contains("rounds each tell a difference of 3.0 %"),
        "{text}"
    );
    let short = found.pull_request();
    assert!(
        short.starts_with("**1 of 2 worse, 0 better, 1 cannot"),
        "{short}"
    );
    assert!(short.contains("δ +1.00"), "{short}");
    assert_eq!(found.unjudged(), [""; 0]);
    let few = tests::run(&[("a", 2.0), ("b", 3.0)], 1);
    let other = tests::run(&[("a", 2.1), ("b", 3.0)], 1);
    let unjudged = contrast(&few, &other).unwrap().unjudged();
    assert_eq!(unjudged.len(), 1, "b is the same in both: {unjudged:?}");
    let clause = "response p50: too few rounds (1 and 1 are ranked)";
    assert!(unjudged[0].ends_with(clause), "{unjudged:?}");
    let short = contrast(&few, &few).unwrap().pull_request();
    assert!(
        short.starts_with("**0 of 2 worse, 0 better, 0 cannot be told apart, 2 cannot be judged"),
        "{short}"
    );
    assert!(short.split("<details>").next().unwrap().lines().count() <= 20);
    assert!(found.markdown().contains("## b: 100 connections"));
}

#[test]
fn figures_of_nothing_have_no_ratio_and_do_not_want_more_rounds() {
    let with_lost = |lost: u64| {
        let mut run = tests::run(&[("a", 2.0)], 8);
        run.rules.as_mut().unwrap().columns = vec!["lost".to_owned()];
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        // Half of the rounds lost nothing.
        for cell in cells.iter_mut().step_by(2) {
            cell.messages.lost = lost;
        }
        run
    };
    for lost in [0, 7] {
        let found = contrast(&with_lost(lost), &with_lost(lost)).unwrap();
        let json = serde_json::to_value(&found).unwrap();
        let of_lost = &json["sections"][0]["metrics"][1];
        assert_eq!(of_lost["rounds"], serde_json::json!([8, 8]), "{json}");
        assert_eq!(of_lost["medians"][0], lost as f64 / 2.0, "{json}");
        assert!(of_lost["relative"].is_null(), "{json}");
        let text = found.text(Style::default());
        let row = text.lines().find(|it| it.contains(" lost ")).unwrap();
        assert!(row.ends_with("no ratio to 0"), "{text}");
    }
}

#[test]
fn rounds_that_nobody_would_wait_for_are_no_figure() {
    let mut run = tests::run(&[("a", 2.0)], 2);
    let Content::Bench(cells) = &mut run.content else {
        panic!("a bench")
    };
    cells[0] = tests::cell("a", 1, 2000.0);
    let found = contrast(&run, &run).unwrap();
    let text = found.text(Style::default());
    let said = "a difference of 3.0 % would take more than 1,000,000 rounds each.";
    assert!(text.contains(said), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    assert!(json["sections"][0]["rounds_needed"].is_null(), "{json}");
}

#[test]
fn a_metric_that_decides_and_is_0_is_not_short_of_rounds() {
    let mut run = tests::run(&[("a", 2.0)], 8);
    run.rules.as_mut().unwrap().primary = "lost".to_owned();
    let found = contrast(&run, &run).unwrap();
    let text = found.text(Style::default());
    assert!(text.contains("0 has no ratio"), "{text}");
    assert!(!text.contains("too few rounds"), "{text}");
    let short = found.pull_request();
    assert!(short.contains("1 cannot be judged"), "{short}");
}

#[test]
fn another_tls_is_said_where_both_are_known() {
    let with = |version: Option<&str>| {
        let mut run = tests::run(&[("a", 2.0)], 6);
        let Content::Bench(cells) = &mut run.content else {
            panic!("a bench")
        };
        for cell in cells {
            cell.tls_agreed = version.map(|it| tls(it, 5, 0)).into_iter().collect();
        }
        run
    };
    let remarks = |a, b| contrast(&with(a), &with(b)).unwrap().remarks().join("; ");
    let said = remarks(Some("1.3"), Some("1.2"));
    assert!(
        said.contains("agreed on TLS 1.3 in A and on TLS 1.2 in B"),
        "{said}"
    );
    assert_eq!(remarks(Some("1.3"), Some("1.3")), "");
    assert_eq!(remarks(None, Some("1.3")), "");
}

#[test]
fn the_only_contestants_are_compared_whatever_they_are_called() {
    let before = tests::run(&[("a", 2.0)], 6);
    let after = tests::run(&[("c", 2.6)], 6);
    let json = serde_json::to_value(contrast(&before, &after).unwrap()).unwrap();
    let primary = &json["sections"][0]["metrics"][0];
    assert_eq!(primary["is_told"], true, "{json}");
    assert_eq!(primary["is_worse"], true);
    let relative = primary["relative"].as_f64().unwrap();
    assert!((relative - 0.3).abs() < 0.02, "{relative}");
    assert!(
        json["sections"][0]["title"]
            .as_str()
            .unwrap()
            .starts_with("a and c: ")
    );
    let few = contrast(&before, &tests::run(&[("c", 2.6)], 2)).unwrap();
    assert!(few.text(Style::default()).contains("too few rounds"));
}

#[test]
fn battles_that_differ_in_a_knob_are_no_pair_and_the_knob_is_named() {
    let before = tests::run(&[("a", 2.0)], 6);
    let mut after = tests::run(&[("a", 2.6)], 6);
    let workers = ("knob workers".to_owned(), "2".to_owned());
    after.environment.notes.extend([workers]);
    let found = contrast(&before, &after).unwrap();
    assert!(found.is_empty());
    let [remark] = found.remarks() else {
        panic!("{:?}", found.remarks())
    };
    assert!(
        remark.ends_with(": no pair, because workers differs"),
        "{remark}"
    );
    assert_eq!(found.unjudged(), [remark.as_str()]);
}

#[test]
fn other_runs_are_none_of_its_business() {
    let battle = tests::run(&[("a", 2.0)], 6);
    let load = Run {
        content: Content::Bench(Vec::new()),
        ..Run::default()
    };
    assert_eq!(contrast(&battle, &load), None);
    let other = tests::run(&[("z", 2.0), ("y", 2.0)], 6);
    assert!(
        contrast(&tests::run(&[("a", 1.0), ("b", 1.0)], 6), &other)
            .unwrap()
            .is_empty()
    );
}
