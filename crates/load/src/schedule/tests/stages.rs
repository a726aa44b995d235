//! Rates that change.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn staged(connections: u32, text: &str, from_per_s: f64, arrival: Arrival, seed: u64) -> Schedule {
    schedule_with(Settings {
        connections,
        pacing: Pacing::Stages {
            stages: RateStages::parse(text, from_per_s).unwrap(),
            arrival,
            in_flight: None,
        },
        stop: Stop::Schedule,
        seed,
        ..Settings::default()
    })
}

fn constant(connections: u32, text: &str, from_per_s: f64) -> Schedule {
    staged(connections, text, from_per_s, Arrival::Constant, 1)
}

/// The times of all connections, from the first on.
fn all_times(schedule: &Schedule, connections: u32) -> Vec<u64> {
    let each = (0..connections).flat_map(|it| times(schedule, it, 0));
    let mut all: Vec<u64> = each.collect();
    all.sort_unstable();
    all
}

fn count_within(times: &[u64], from_ns: u64, to_ns: u64) -> usize {
    times
        .iter()
        .filter(|at| (from_ns..to_ns).contains(*at))
        .count()
}

#[test]
fn each_stage_has_the_messages_of_its_integral() {
    // A ramp, a steady part, a jump up, a ramp down to nothing, a pause, and a jump out of it.
    let text = "10s:1k,30s:1k,0s:5k,10s:5k,5s:0,3s:0,0s:7,2s:7";
    let schedule = constant(7, text, 0.0);
    let all = all_times(&schedule, 7);
    let parts = [
        (0, 10, 5_000),
        (10, 40, 30_000),
        (40, 50, 50_000),
        (50, 55, 12_500),
        (55, 58, 0),
        (58, 60, 14),
    ];
    for (from_s, to_s, expected) in parts {
        let found = count_within(&all, from_s * SECOND_NS, to_s * SECOND_NS);
        assert_eq!(found, expected, "{from_s} s to {to_s} s");
    }
    assert_eq!(all.len(), 97_514);
    assert_eq!(schedule.planned_ns(), Some(60 * SECOND_NS));
    let stages = RateStages::parse(text, 0.0).unwrap();
    assert_eq!(messages_of(&stages), 97_514);
}

#[test]
fn times_of_a_ramp_are_those_of_the_parabola() {
    // 50 t^2 messages after t seconds up, and the mirror image of it down.
    let all = all_times(&constant(3, "10s:1k,10s:0", 0.0), 3);
    assert_eq!(all.len(), 10_000);
    for (number, at_ns) in all.iter().enumerate() {
        let number = number as f64;
        let expected_s = match number {
            up if up < 5_000.0 => (up / 50.0).sqrt(),
            down => 20.0 - ((10_000.0 - down) / 50.0).sqrt(),
        };
        let found_s = *at_ns as f64 / 1e9;
        assert!(
            (found_s - expected_s).abs() < 1e-8,
            "{number}: {found_s} {expected_s}"
        );
    }
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_steady_stage_is_the_grid_of_a_rate() {
    let rate = schedule(
        7,
        open(333.0, Arrival::Constant),
        Stop::After(Duration::from_secs(61)),
    );
    for (text, from) in [
        ("61s:333", 333.0),
        ("0s:333,61s:333", 0.0),
        ("20s:333,41s:333", 333.0),
    ] {
        let staged = constant(7, text, from);
        for connection in 0..7 {
            assert_eq!(
                times(&staged, connection, 0),
                times(&rate, connection, 0),
                "{text}"
            );
            let late_ns = 1_234_567_891;
            assert_eq!(
                times(&staged, connection, late_ns),
                times(&rate, connection, late_ns),
                "{text}"
            );
        }
    }
}

#[test]
fn any_number_of_connections_sends_the_same_messages_in_turn() {
    let text = "3s:500,2s:0,1s:0,2s:800";
    let one = all_times(&constant(1, text, 100.0), 1);
    for connections in [2, 5, 64] {
        let schedule = constant(connections, text, 100.0);
        assert_eq!(all_times(&schedule, connections), one, "{connections}");
        let each: Vec<usize> = (0..connections)
            .map(|it| times(&schedule, it, 0).len())
            .collect();
        let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
        assert!(most - least <= 1, "{each:?}");
    }
}

#[test]
fn nothing_is_due_in_a_pause_and_what_follows_it_starts_at_its_end() {
    let all = all_times(
        &constant(2, "2s:0,0s:4,1s:4,1s:0,0s:0,1s:0,0s:2,1s:2", 0.0),
        2,
    );
    assert_eq!(all[0], 2 * SECOND_NS);
    assert_eq!(count_within(&all, 0, 2 * SECOND_NS), 0);
    assert_eq!(count_within(&all, 4 * SECOND_NS, 5 * SECOND_NS), 0);
    assert_eq!(all[6..], [5 * SECOND_NS, 5 * SECOND_NS + SECOND_NS / 2]);
}

#[test]
fn what_is_due_in_stages_is_counted_as_it_would_be_stepped_through() {
    for arrival in [Arrival::Constant, Arrival::Poisson] {
        let schedule = staged(3, "1s:90,500ms:0,200ms:0,1s:40", 5.0, arrival, 4);
        for connection in 0..3 {
            let joined_ns = 123_456_789;
            let all = times(&schedule, connection, joined_ns);
            assert!(all[0] >= joined_ns);
            let cursor = schedule.join(connection, joined_ns);
            for until_ns in [
                0,
                200_000_000,
                999_999_999,
                1_600_000_000,
                2_345_678_901,
                NEVER,
            ] {
                let due = all.iter().filter(|&&at| at < until_ns).count() as u64;
                assert_eq!(
                    schedule.due_before(connection, &cursor, until_ns),
                    due,
                    "{arrival:?}"
                );
            }
        }
    }
}

#[test]
fn poisson_arrivals_follow_the_rate_and_the_seed() {
    let text = "50s:2k,10s:0,50s:1k";
    let of_seed = |seed| all_times(&staged(10, text, 0.0, Arrival::Poisson, seed), 10);
    let all = of_seed(1);
    // 50,000, 10,000 and 25,000 expected; five standard deviations each.
    for (from_s, to_s, expected) in [
        (0, 50, 50_000.0_f64),
        (50, 60, 10_000.0),
        (60, 110, 25_000.0),
    ] {
        let found = count_within(&all, from_s * SECOND_NS, to_s * SECOND_NS) as f64;
        let bound = 5.0 * expected.sqrt();
        assert!(
            (found - expected).abs() < bound,
            "{from_s} s to {to_s} s: {found}"
        );
    }
    // In the measure of the integral the gaps are those of a constant rate.
    let masses: Vec<f64> = all
        .iter()
        .map(|&at| at as f64 / 1e9)
        .take_while(|at_s| *at_s < 50.0)
        .map(|at_s| 20.0 * at_s * at_s)
        .collect();
    let gaps: Vec<f64> = masses.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!(
        (0.97..1.03).contains(&(variance.sqrt() / mean)),
        "{variance}"
    );
    assert_eq!(all, of_seed(1));
    assert_ne!(all, of_seed(2));
}

#[test]
fn the_largest_stages_have_exact_sums() {
    let schedule = constant(1, "24h:10m,24h:0", 0.0);
    let end_ns = 2 * 24 * 3600 * SECOND_NS;
    assert_eq!(schedule.planned_ns(), Some(end_ns));
    let cursor = schedule.join(0, 0);
    let all = 10_000_000 * 24 * 3600;
    assert_eq!(schedule.due_before(0, &cursor, NEVER), all);
    assert_eq!(schedule.due_before(0, &cursor, end_ns / 2), all / 2);
    // Between two messages near the middle, and near the end.
    for joined_ns in [end_ns / 2 + 1, end_ns - 2 * SECOND_NS] {
        let cursor = schedule.join(0, joined_ns);
        assert!(cursor.next_ns() >= joined_ns && cursor.next_ns() < joined_ns + 10_000_000);
    }
}
