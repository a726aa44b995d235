use super::*;

pub(crate) fn sample(at: Instant, cpu_ns: u64) -> Sample {
    Sample {
        at,
        cpu_ns,
        waited_ns: 0,
        rss_bytes: cpu_ns,
        threads: 1,
        voluntary_switches: 0,
        involuntary_switches: 0,
        retransmitted_segments: 0,
        listen_overflows: 0,
        tcp_memory_bytes: 0,
        stolen_ms: 0,
        throttling: None,
        processors: Vec::new(),
        observer_cpu_ns: 0,
        rare: None,
    }
}

#[test]
fn cpu_is_interpolated_between_samples() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let series = Series(vec![sample(at(0), 0), sample(at(1000), 500_000_000)]);
    assert_eq!(series.cpu_share(at(200), at(400)), Some(0.5));
    assert_eq!(
        series.cpu_ns_at(at(5000)),
        Some(5e8),
        "the last sample stands"
    );
    assert_eq!(series.cpu_ns_at(start - Duration::from_millis(1)), None);
    assert_eq!(
        series.last_until(at(999)).map(|sample| sample.cpu_ns),
        Some(0)
    );
    assert_eq!(series.rss_peak_bytes(), Some(500_000_000));
    let timed: Vec<f64> = series
        .timed(at(250))
        .iter()
        .map(|sample| sample.at_s)
        .collect();
    assert_eq!(timed, [-0.25, 0.75]);
}

#[test]
fn the_range_of_cpu_is_that_of_the_samples_within() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let ms = 1_000_000;
    let series = Series(vec![
        sample(at(0), 0),
        sample(at(100), 100 * ms),
        sample(at(200), 110 * ms),
        // Close to its neighbour, and no sample of its own.
        sample(at(201), 111 * ms),
        sample(at(300), 150 * ms),
        sample(at(400), 230 * ms),
    ]);
    let range = |from, to| {
        let (least, most) = series.cpu_range(at(from), at(to)).unwrap();
        [least, most].map(|share| (share * 1000.0).round() / 1000.0)
    };
    assert_eq!(range(0, 400), [0.1, 1.0]);
    assert_eq!(range(100, 400), [0.1, 0.8]);
    // The ends count, but for a last 20 ms, which belong to what is before them.
    assert_eq!(range(150, 350), [0.1, 0.8]);
    assert_eq!(range(0, 320), [0.1, 1.0]);
    let (_, most) = series.cpu_range(at(200), at(320)).unwrap();
    assert!((0.466..0.467).contains(&most), "{most}");
    // Between two samples there is one share.
    assert_eq!(range(310, 390), [0.8, 0.8]);
    assert_eq!(Series::default().cpu_range(at(0), at(400)), None);
}

#[test]
fn what_counts_up_is_told_by_parts_that_add_up_and_close_looks_where_they_were() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut series = Series(vec![
        sample(at(0), 0),
        sample(at(900), 10),
        sample(at(2100), 17),
    ]);
    let close = RareSample {
        pss_bytes: 7,
        descriptors: 3,
    };
    series.0[1].rare = Some(close);
    let rise = |from, to| series.rise(at(from), at(to), |sample| sample.cpu_ns);
    let parts = [rise(0, 700), rise(700, 1400), rise(1400, 2100)].map(Option::unwrap);
    assert_eq!((parts.iter().sum::<u64>(), parts[0]), (17, 8));
    assert!(series.rare_within(at(0), at(900)).is_none());
    assert_eq!(series.rare_within(at(900), at(2000)).unwrap().pss_bytes, 7);
}

#[test]
fn a_process_that_takes_the_place_of_another_goes_on_counting() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let series = |ms, cpu_ns| Series(vec![sample(at(ms), cpu_ns), sample(at(ms + 10), 400)]);
    let both = series(0, 100).followed_by(series(50, 7));
    let cpu: Vec<u64> = both.0.iter().map(|sample| sample.cpu_ns).collect();
    assert_eq!(cpu, [100, 400, 407, 800]);
    let memory: Vec<u64> = both.0.iter().map(|sample| sample.rss_bytes).collect();
    assert_eq!(memory, [100, 400, 7, 400]);
    assert_eq!(Series::default().followed_by(series(0, 1)).0.len(), 2);
}

#[test]
fn what_is_used_now_is_that_of_the_last_second() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let newest = Newest::default();
    assert_eq!(newest.usage("a"), None);
    for (ms, cpu_ns) in [
        (0, 0),
        (1000, 900_000_000),
        (1500, 950_000_000),
        (2000, 1_000_000_000),
    ] {
        newest.note(&sample(at(ms), cpu_ns));
    }
    let usage = newest.usage("a").unwrap();
    assert!((usage.cpu_cores - 0.1).abs() < 1e-9, "{usage:?}");
    assert_eq!(usage.rss_bytes, 1_000_000_000);
}

#[test]
fn an_empty_series_knows_nothing() {
    assert_eq!(
        Series::default().cpu_share(Instant::now(), Instant::now()),
        None
    );
    assert_eq!(Series::default().rss_peak_bytes(), None);
}

#[test]
fn kernel_tables_are_read_by_name() {
    let snmp = "Ip: A B\nIp: 1 2\nTcp: ActiveOpens RetransSegs\nTcp: 7 42\n";
    assert_eq!(titled(snmp, "Tcp", "RetransSegs"), Some(42));
    assert_eq!(titled(snmp, "Tcp", "Missing"), None);
    assert_eq!(titled(snmp, "Udp", "A"), None);
    let sockstat = "sockets: used 22\nTCP: inuse 2 orphan 6 tw 0 alloc 8 mem 591\n";
    assert_eq!(labelled(sockstat, "TCP", "mem"), Some(591));
    assert_eq!(labelled(sockstat, "UDP", "mem"), None);
}

#[test]
fn this_process_is_on_record_from_the_start_to_the_stop() {
    let sampler = Sampler::start(&[std::process::id() as i32], Duration::from_secs(3600));
    let series = sampler.stop();
    assert_eq!(series.0.len(), 2);
    let last = &series.0[1];
    assert!(last.observer_cpu_ns >= series.0[0].observer_cpu_ns && last.observer_cpu_ns > 0);
    assert!(last.waited_ns > 0, "{last:?}");
    assert!(last.cpu_ns >= series.0[0].cpu_ns && last.rss_bytes > 100_000 && last.threads > 0);
    let rare = last.rare.expect("the last look is a close one");
    assert!(rare.pss_bytes > 0 && rare.descriptors > 2);
}

#[test]
fn a_process_that_ended_has_no_samples() {
    let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    let sampler = Sampler::start(&[child.id() as i32], Duration::from_secs(3600));
    assert!(sampler.stop().0.is_empty());
}

#[test]
fn the_cpu_time_of_a_process_that_ended_stays_counted() {
    let own = tree::members(&[std::process::id() as i32])[0];
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let ended = tree::members(&[child.id() as i32])[0];
    child.kill().unwrap();
    child.wait().unwrap();
    let mut watched = Watched {
        members: vec![(own, 0), (ended, 5_000_000_000)],
        ..Watched::default()
    };
    let first = watched.look(None, false).unwrap();
    assert!(first.cpu_ns >= 5_000_000_000 && watched.has_lost);
    watched.set(vec![own]);
    assert!(!watched.has_lost);
    let second = watched.look(None, false).unwrap();
    assert!(second.cpu_ns >= first.cpu_ns);
    // One that is looked at no more, and may live on, has what it had until then.
    watched.set(Vec::new());
    assert!(watched.ended_ns >= second.cpu_ns);
    assert!(watched.look(None, false).is_none());
}
