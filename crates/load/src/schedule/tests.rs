mod stages;

use std::time::Duration;

use super::*;
use crate::scenario::Settings;
use crate::target::Target;

fn schedule(connections: u32, pacing: Pacing, stop: Stop) -> Schedule {
    schedule_with(Settings {
        connections,
        pacing,
        stop,
        ..Settings::default()
    })
}

fn schedule_with(settings: Settings) -> Schedule {
    let targets = vec![Target::parse("ws://127.0.0.1:9/").unwrap()];
    Schedule::new(
        &Scenario::new(Settings {
            targets,
            ..settings
        })
        .unwrap(),
    )
}

fn open(rate: f64, arrival: Arrival) -> Pacing {
    Pacing::Open {
        rate,
        arrival,
        in_flight: None,
    }
}

fn times(schedule: &Schedule, connection: u32, joined_ns: u64) -> Vec<u64> {
    let mut cursor = schedule.join(connection, joined_ns);
    let mut times = Vec::new();
    while cursor.next_ns() != NEVER {
        times.push(cursor.next_ns());
        schedule.advance(connection, &mut cursor);
    }
    times
}

#[test]
fn a_constant_rate_is_one_grid_over_all_connections_without_drift() {
    let schedule = schedule(
        7,
        open(3.0, Arrival::Constant),
        Stop::After(Duration::from_secs(3600)),
    );
    let mut all: Vec<u64> = (0..7).flat_map(|c| times(&schedule, c, 0)).collect();
    all.sort_unstable();
    let grid: Vec<u64> = (0..3 * 3600).map(|i| i * 1_000_000_000 / 3).collect();
    assert_eq!(all, grid);
}

#[test]
fn a_number_of_messages_is_met_exactly_by_every_shape() {
    let batches = Pacing::Batches {
        batch: 3,
        wait: Duration::from_millis(10),
        batches: 1000,
        in_flight: None,
    };
    let shapes = [
        open(1e6, Arrival::Constant),
        open(1e6, Arrival::Poisson),
        batches,
    ];
    for pacing in shapes {
        for messages in [1, 6, 7, 1001] {
            let schedule = schedule(7, pacing.clone(), Stop::Messages(messages));
            let sent: usize = (0..7).map(|c| times(&schedule, c, 0).len()).sum();
            assert_eq!(sent as u64, messages, "{pacing:?}");
        }
    }
}

#[test]
fn who_joins_late_starts_at_its_next_place_in_the_grid() {
    let schedule = schedule(
        4,
        open(4.0, Arrival::Constant),
        Stop::After(Duration::from_secs(5)),
    );
    assert_eq!(times(&schedule, 1, 0)[0], 250_000_000);
    assert_eq!(times(&schedule, 1, 250_000_000)[0], 250_000_000);
    assert_eq!(times(&schedule, 1, 250_000_001)[0], 1_250_000_000);
    assert_eq!(times(&schedule, 1, 4_300_000_000), Vec::<u64>::new());
}

#[test]
fn poisson_arrivals_have_the_rate_and_the_spread_of_poisson() {
    let stop = Stop::After(Duration::from_secs(100));
    let schedule = schedule(10, open(1000.0, Arrival::Poisson), stop);
    let mut all: Vec<u64> = (0..10).flat_map(|c| times(&schedule, c, 0)).collect();
    all.sort_unstable();
    // 100,000 expected; five standard deviations are 1,581.
    assert!((98_419..=101_581).contains(&all.len()), "{}", all.len());
    let gaps: Vec<f64> = all
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as f64)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let variation = variance.sqrt() / mean;
    assert!((0.97..1.03).contains(&variation), "{variation}");
    assert_eq!(
        times(&schedule, 3, 0),
        times(&schedule, 3, 0),
        "the seed decides"
    );
}

#[test]
fn batches_start_evenly_over_the_stagger() {
    let wait = Duration::from_millis(1000);
    let schedule = schedule_with(Settings {
        connections: 250,
        pacing: Pacing::Batches {
            batch: 2,
            wait,
            batches: 3,
            in_flight: None,
        },
        stop: Stop::Schedule,
        stagger: Some(Duration::from_millis(100)),
        ..Settings::default()
    });
    let microseconds: Vec<u64> = times(&schedule, 142, 0)
        .iter()
        .map(|ns| ns / 1_000)
        .collect();
    assert_eq!(
        microseconds,
        [56_800, 56_800, 1_056_800, 1_056_800, 2_056_800, 2_056_800]
    );
    assert_eq!(schedule.planned_ns(), Some(2_099_600_000));
    assert_eq!(schedule.last_stagger_ns(), 99_600_000);
}

#[test]
fn the_end_is_exclusive_and_what_was_due_is_counted() {
    let stop = Stop::After(Duration::from_secs(1));
    let schedule = schedule(1, open(10.0, Arrival::Constant), stop);
    assert_eq!(times(&schedule, 0, 0).len(), 10);
    let mut cursor = schedule.join(0, 0);
    schedule.advance(0, &mut cursor);
    assert_eq!(schedule.due_before(0, &cursor, 500_000_000), 4);
    assert_eq!(schedule.due_before(0, &cursor, 500_000_001), 5);
    assert_eq!(schedule.due_before(0, &cursor, NEVER), 9);
}

#[test]
fn what_is_due_is_counted_as_it_would_be_stepped_through() {
    let wait = Duration::from_millis(300);
    let batches = Pacing::Batches {
        batch: 4,
        wait,
        batches: 9,
        in_flight: None,
    };
    for pacing in [
        open(17.0, Arrival::Constant),
        open(17.0, Arrival::Poisson),
        batches,
    ] {
        let schedule = schedule(3, pacing, Stop::After(Duration::from_secs(2)));
        for connection in 0..3 {
            let all = times(&schedule, connection, 0);
            let cursor = schedule.join(connection, 0);
            for until_ns in [0, 1, 299_999_999, 300_000_000, 1_234_567_890, NEVER] {
                let due = all.iter().filter(|&&at| at < until_ns).count() as u64;
                assert_eq!(schedule.due_before(connection, &cursor, until_ns), due);
            }
        }
    }
}

#[test]
fn closed_loops_and_held_connections_have_no_times() {
    let schedule = schedule(3, Pacing::Closed { in_flight: 2 }, Stop::Messages(7));
    let left: Vec<u64> = (0..3).map(|c| schedule.join(c, 5).left()).collect();
    assert_eq!(left, [3, 2, 2]);
    assert_eq!(schedule.join(0, 5).next_ns(), NEVER);
    assert_eq!(schedule.join(0, 5).epoch_ns(), 5);
    assert_eq!(schedule.planned_ns(), None);
}

#[test]
fn a_number_of_poisson_arrivals_is_one_stream_of_the_rate() {
    for (connections, messages) in [(1000, 1000), (1000, 100), (7, 20_000)] {
        let schedule = schedule(
            connections,
            open(1000.0, Arrival::Poisson),
            Stop::Messages(messages),
        );
        let mut all: Vec<u64> = (0..connections)
            .flat_map(|c| times(&schedule, c, 0))
            .collect();
        all.sort_unstable();
        assert_eq!(all.len() as u64, messages);
        let planned_ns = schedule.planned_ns().unwrap();
        assert!(all.last().is_some_and(|&last_ns| last_ns < planned_ns));
        // Five standard deviations of the time of the last arrival.
        let expected_ns = messages as f64 * 1e6;
        let bound_ns = 5.0 * expected_ns / (messages as f64).sqrt();
        assert!(
            (planned_ns as f64 - expected_ns).abs() < bound_ns,
            "{planned_ns}"
        );
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = |gap: &f64| (gap - mean).powi(2);
        let variance = gaps.iter().map(square).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((0.7..1.3).contains(&variation), "{variation}");
    }
}
