use super::*;

fn settings() -> Settings {
    let target = Target::parse("ws://127.0.0.1:9/echo").unwrap();
    Settings {
        targets: vec![target],
        ..Settings::default()
    }
}

fn sentence(change: impl FnOnce(&mut Settings)) -> String {
    let mut settings = settings();
    change(&mut settings);
    Scenario::new(settings)
        .expect_err("the change is a mistake")
        .to_string()
}

#[test]
fn defaults_run() {
    let scenario = Scenario::new(settings()).unwrap();
    assert_eq!(scenario.connections_total(), 10);
    assert_eq!(scenario.in_flight_max(), Some(1));
    assert_eq!(scenario.messages_planned(), None);
}

#[test]
fn each_mistake_has_its_sentence() {
    let open = |rate| Pacing::Open {
        rate,
        arrival: Arrival::Constant,
        in_flight: None,
    };
    assert!(sentence(|s| s.targets.clear()).contains("no URL"));
    assert!(sentence(|s| s.connections = 0).contains("at least 1 connection"));
    assert!(sentence(|s| s.connections = u32::MAX).contains("more than the 10000000"));
    assert!(sentence(|s| s.threads = 0).contains("threads"));
    assert!(sentence(|s| s.pacing = open(-5.0)).contains("message rate must be between"));
    assert!(sentence(|s| s.pacing = open(f64::NAN)).contains("NaN"));
    assert!(sentence(|s| s.pacing = Pacing::Closed { in_flight: 0 }).contains("in flight"));
    assert!(sentence(|s| s.stop = Stop::Schedule).contains("only batches and stages end"));
    assert!(sentence(|s| s.stop = Stop::Messages(0)).contains("at least 1"));
    assert!(sentence(|s| s.replies = 0).contains("at least 1 reply"));
    assert!(sentence(|s| s.headers = vec![("a b".into(), "c".into())]).contains("`a b`"));
    assert!(sentence(|s| s.headers = vec![("a".into(), "c\r\n".into())]).contains("control"));
    let own = |s: &mut Settings| s.headers = vec![("host".into(), "a".into())];
    assert!(sentence(own).contains("`host` is part of every upgrade"));
    assert!(sentence(|s| s.subprotocols = vec!["a,b".into()]).contains("subprotocol"));
    let time_unit = TimeUnit::Microseconds;
    assert!(sentence(|s| s.workload = Workload::Amplify { size: 9, time_unit }).contains("112"));
}

#[test]
fn short_lived_connections_have_their_sentences_too() {
    let short = |change: fn(&mut Settings)| {
        sentence(|s| {
            s.messages_per_connection = Some(1);
            s.stop = Stop::Schedule;
            s.barrier = false;
            change(s);
        })
    };
    assert!(short(|s| s.messages_per_connection = Some(0)).contains("at least 1 message per"));
    assert!(short(|s| s.open_max = Some(0)).contains("room for at least 1"));
    assert!(short(|s| s.stop = Stop::Messages(5)).contains("one of the two"));
    assert!(short(|s| s.stagger = Some(Duration::ZERO)).contains("no stagger"));
    assert!(short(|s| s.pacing = Pacing::Hold).contains("a rate of connections"));
    let barrier = |s: &mut Settings| (s.barrier, s.open_max) = (true, Some(9));
    assert!(short(barrier).contains("give no barrier"));
    assert!(sentence(|s| s.open_max = Some(5)).contains("make no room"));
}

#[test]
fn short_lived_connections_know_their_messages() {
    let scenario = Scenario::new(Settings {
        messages_per_connection: Some(3),
        open_max: Some(4),
        barrier: false,
        stop: Stop::Schedule,
        threads: 9,
        ..settings()
    })
    .unwrap();
    assert_eq!(scenario.messages_planned(), Some(30));
    assert_eq!((scenario.workers(), scenario.open_max()), (4, 4));
}

#[test]
fn pauses_that_cannot_grow_are_refused() {
    let ms = Duration::from_millis;
    let pauses = |first, max| Reconnect::Exponential {
        first,
        max,
        jitter: true,
    };
    assert!(sentence(|s| s.reconnect = pauses(ms(9), ms(8))).contains("from 9ms to 8ms"));
    assert!(sentence(|s| s.reconnect = pauses(ms(0), ms(8))).contains("above 0"));
    assert!(sentence(|s| s.reconnect = Reconnect::After(Duration::MAX)).contains("30 days"));
    assert!(sentence(|s| s.reconnect = pauses(ms(1), Duration::MAX)).contains("30 days"));
}

#[test]
fn batches_know_their_messages() {
    let mut settings = settings();
    let wait = Duration::from_secs(1);
    settings.pacing = Pacing::Batches {
        batch: 2,
        wait,
        batches: 3,
        in_flight: None,
    };
    settings.stop = Stop::Schedule;
    assert_eq!(
        Scenario::new(settings).unwrap().messages_planned(),
        Some(60)
    );
}

#[test]
fn a_stagger_fits_into_the_wait_and_the_duration() {
    let batches = |wait_ms| Pacing::Batches {
        batch: 1,
        wait: Duration::from_millis(wait_ms),
        batches: 20,
        in_flight: None,
    };
    let with = |pacing, stop| {
        let stagger = Some(Duration::from_secs(1));
        Scenario::new(Settings {
            pacing,
            stop,
            stagger,
            ..settings()
        })
    };
    let too_long = with(batches(999), Stop::Schedule).unwrap_err().to_string();
    assert!(
        too_long.contains("longer than the wait of 999ms"),
        "{too_long}"
    );
    with(batches(1000), Stop::Schedule).unwrap();
    with(batches(0), Stop::Schedule).unwrap();
    let closed = Pacing::Closed { in_flight: 1 };
    let short = Stop::After(Duration::from_millis(999));
    let too_long = with(closed.clone(), short).unwrap_err().to_string();
    assert!(too_long.contains("longer than the duration"), "{too_long}");
    with(closed, Stop::After(Duration::from_secs(1))).unwrap();
}
