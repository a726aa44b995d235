use super::*;
use crate::run::Content;
use crate::sample;

fn load(scale_ms: f64, clients: u64) -> Run {
    let cell = sample::cell(clients, scale_ms, 20, 10);
    Run {
        content: Content::Load(Box::new(cell)),
        ..Run::default()
    }
}

fn find<'a>(comparison: &'a Comparison, metric: &str) -> &'a Change {
    comparison
        .changes()
        .find(|change| change.metric == metric)
        .unwrap()
}

#[test]
fn a_run_is_the_same_as_itself() {
    let run = load(4.0, 1000);
    let comparison = compare(&run, Some(&run));
    assert!(comparison.changes().all(|change| !change.is_significant()));
    assert_eq!(find(&comparison, "response p99").relative, Some(0.0));
}

#[test]
fn a_slower_run_is_a_regression_and_only_that_way_round() {
    let (fast, slow) = (load(1.0, 1000), load(20.0, 1000));
    let there = compare(&fast, Some(&slow));
    assert!(
        find(&there, "response p50").is_regression(),
        "{}",
        there.text(Style::default())
    );
    assert!(find(&there, "response p50").relative.unwrap() > 0.1);
    let beyond = |bound| there.regressions_beyond(bound).join("; ");
    assert!(beyond(0.05).contains("response p50 +"), "{}", beyond(0.05));
    assert_eq!(beyond(1e6), "");
    let back = compare(&slow, Some(&fast));
    assert!(!find(&back, "response p50").is_regression());
    assert!(back.text(Style::default()).contains("better"));
}

#[test]
fn runs_that_differ_in_a_knob_are_not_judged_and_the_knob_is_named() {
    let run = |think: u64| {
        let mut run = load(1.0, 1000);
        let Content::Load(cell) = &mut run.content else {
            panic!("a load")
        };
        cell.scenario.insert("think".to_owned(), think.into());
        run
    };
    let found = compare(&run(1), Some(&run(2)));
    let reason = "not judged, because they are no pair: think differs";
    assert!(found.unjudged()[0].ends_with(reason), "{found:?}");
    assert_eq!(compare(&run(1), Some(&run(1))).unjudged(), [""; 0]);
}

#[test]
fn what_is_invalid_or_another_load_is_not_judged() {
    let (fast, slow) = (load(1.0, 1000), load(20.0, 1000));
    let mut late = slow.clone();
    let Content::Load(cell) = &mut late.content else {
        panic!("a load")
    };
    cell.assessment
        .add(Verdict::Invalid, "the generator was late");
    for (b, reason) in [
        (&late, "not judged, because B is INVALID"),
        (
            &load(20.0, 2000),
            "not judged, because they are other loads",
        ),
    ] {
        let found = compare(&fast, Some(b));
        assert_eq!(found.regressions_beyond(0.0), [""; 0]);
        assert!(
            found.unjudged()[0].ends_with(reason),
            "{:?}",
            found.unjudged()
        );
        for text in [found.text(Style::default()), found.markdown()] {
            assert!(text.contains(reason) && !text.contains("worse  "), "{text}");
        }
        assert!(
            found
                .pull_request()
                .starts_with("**0 metrics worse, 0 better**")
        );
    }
    assert_eq!(compare(&fast, Some(&slow)).unjudged(), [""; 0]);
}

#[test]
fn seconds_that_went_the_other_way_than_the_whole_judge_nothing() {
    let a = load(4.0, 1000);
    let mut b = a.clone();
    let Content::Load(cell) = &mut b.content else {
        panic!("a load")
    };
    // One second alone was bad, and all others were better than before.
    cell.latency.response.record_n(90_000_000_000, 1000);
    for interval in &mut cell.intervals {
        let latency = interval.response.as_mut().unwrap();
        latency.p99_us /= 10.0;
    }
    let comparison = compare(&a, Some(&b));
    let change = find(&comparison, "response p99");
    assert!(change.relative.unwrap() > 1.0 && change.p_value.unwrap() < SIGNIFICANCE);
    assert!(
        !change.is_significant() && !change.is_regression(),
        "{change:?}"
    );
    assert_eq!(change.judgement(), "not told");
}

#[test]
fn the_interval_of_a_ratio_knows_that_both_ends_scatter() {
    // Three times as much of A, which is known to 1 %: the ratio is off by 3 % for that alone.
    let wide = Estimate {
        mean: 100.0,
        error: 1.0,
        effective_count: 1e6,
    };
    let narrow = Estimate {
        mean: 300.0,
        error: 0.0,
        effective_count: 1e6,
    };
    let margin = relative_margin(&wide, &narrow).unwrap();
    assert!((margin - 1.96 * 0.03).abs() < 1e-3, "{margin}");
}

/// Ten and a half seconds of about `per_s` messages a second, then a drain of two.
fn steady(per_s: f64) -> Run {
    let mut cell = sample::cell(100, 1.0, 13, 10);
    cell.rate.duration_s = 10.5;
    cell.rate.sent_per_s = per_s;
    cell.rate.received_per_s = per_s;
    for (second, interval) in cell.intervals.iter_mut().enumerate() {
        let share = [1.0, 0.5, 0.0][second.saturating_sub(9).min(2)];
        let wobble = 1.0 + [0.01, -0.02, 0.015, -0.005][second % 4];
        interval.sent = (per_s * wobble * share) as u64;
        interval.received = interval.sent;
    }
    cell.intervals[12].length_s = 0.3;
    Run {
        content: Content::Load(Box::new(cell)),
        ..Run::default()
    }
}

#[test]
fn a_fifth_less_throughput_over_ten_seconds_is_seen() {
    let comparison = compare(&steady(1000.0), Some(&steady(800.0)));
    for metric in ["sent", "received"] {
        let change = find(&comparison, metric);
        assert!(change.is_regression(), "{change:?}");
    }
    let same = compare(&steady(1000.0), Some(&steady(1000.0)));
    assert!(!find(&same, "sent").is_significant());
}

#[test]
fn only_whole_intervals_of_the_sending_phase_are_samples() {
    let run = steady(1000.0);
    for metric in &METRICS {
        let values = metric.series(&run.cells()[0]).len();
        assert!(values == 0 || values == 10, "{}: {values}", metric.name);
    }
}

#[test]
fn one_run_alone_has_its_errors_and_no_second_column() {
    let text = compare(&load(1.0, 1000), None).text(Style::default());
    assert!(text.contains("±") && !text.contains("change"), "{text}");
}

#[test]
fn cells_without_a_partner_and_other_parameters_are_named() {
    let bench = sample::bench(6, 100);
    let mut shorter = bench.clone();
    let Content::Bench(cells) = &mut shorter.content else {
        panic!("a bench")
    };
    cells.remove(0);
    let markdown = compare(&bench, Some(&shorter)).markdown();
    assert!(
        markdown.contains("c1000_b1_n6_w1000_s1024_r4_l20ms is in A only"),
        "{markdown}"
    );
    let differing = compare(&load(1.0, 1000), Some(&load(1.0, 2000)));
    let markdown = differing.markdown();
    for part in [
        "the parameters differ",
        "A: 1,000 clients",
        "B: 2,000 clients",
    ] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
    assert!(markdown.find("the parameters differ") < markdown.find("| sent"));
}
