use super::*;

fn flags(flags: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = flags
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    owned.collect()
}

#[test]
fn every_shipped_scenario_can_run() {
    let shipped = LabScenario::shipped();
    assert!(shipped.len() >= 3, "{shipped:?}");
    let roster = crate::contestant::Roster::load(None).unwrap();
    for (name, description) in shipped {
        let scenario = LabScenario::of_name(&name, &[]).unwrap();
        assert_eq!(scenario.description, description);
        assert!(!scenario.loads().is_empty());
        roster.select(&scenario.contestants).unwrap();
        roster
            .select(std::slice::from_ref(&scenario.backend))
            .unwrap();
    }
}

#[test]
fn flags_take_the_place_of_what_the_file_says() {
    let flags = flags(&[("connections", "100,200"), ("tls", "on"), ("rounds", "2")]);
    let scenario = LabScenario::of_name("battle-shortlived", &flags).unwrap();
    let connections = |load: &LoadPlan| load.parameters.clients;
    let loads = scenario.loads();
    assert_eq!(
        loads.iter().map(connections).collect::<Vec<_>>(),
        [100, 200]
    );
    assert_eq!((scenario.tls, scenario.rounds), (vec![true], 2));
    assert_eq!(loads[0].settings.open_max, Some(100));
    assert_eq!(loads[0].settings.messages_per_connection, Some(1));
}

/// Each wait is spread over itself: a stagger of one of them would not fit the others.
#[test]
fn batches_of_several_waits_are_each_staggered_over_their_own() {
    let times = |knobs: &[(&str, &str)]| {
        let loads = LabScenario::of_name("latency", &flags(knobs))
            .unwrap()
            .loads();
        let each = loads.iter().map(|load| {
            let of = &load.parameters;
            assert_eq!(
                load.settings.stagger.map(|it| it.as_secs_f64() * 1e3),
                of.stagger_ms
            );
            (of.wait_ms.unwrap(), of.stagger_ms.unwrap(), of.key())
        });
        each.collect::<Vec<_>>()
    };
    let [short, long] = &times(&[("connections", "5"), ("wait", "100ms,1s")])[..] else {
        panic!("two loads")
    };
    assert_eq!((short.0, short.1), (100.0, 100.0));
    assert_eq!((long.0, long.1), (1000.0, 1000.0));
    assert_ne!(short.2, long.2);
    let told = times(&[
        ("connections", "5"),
        ("wait", "100ms,1s"),
        ("stagger", "50ms"),
    ]);
    assert!(
        told.iter().all(|(_, stagger, _)| *stagger == 50.0),
        "{told:?}"
    );
    let wrong = flags(&[("wait", "100ms,1s"), ("stagger", "1s")]);
    let sentence = LabScenario::of_name("latency", &wrong)
        .unwrap_err()
        .to_string();
    assert!(
        sentence.contains("a stagger of 1s is longer than the wait of 100ms"),
        "{sentence}"
    );
}

#[test]
fn ways_to_connect_are_varied_and_told_apart() {
    let scenario = LabScenario::of_name("reconnect-storm", &[]).unwrap();
    let loads = scenario.loads();
    let keys: std::collections::BTreeSet<String> =
        loads.iter().map(|load| load.parameters.key()).collect();
    assert_eq!((loads.len(), keys.len()), (6, 6), "{keys:?}");
    assert!(scenario.fault.is_some());
    let one = flags(&[("conn_concurrency", "7"), ("reconnect", "1s")]);
    let loads = LabScenario::of_name("reconnect-storm", &one)
        .unwrap()
        .loads();
    let [only] = loads.as_slice() else {
        panic!("{loads:?}")
    };
    assert_eq!(only.settings.connect_concurrency, 7);
    assert_eq!(only.parameters.connect_concurrency, None);
}

/// What a scenario needs, with one line more.
fn mistake_of(line: &str) -> String {
    let text =
        format!("contestants = ['moonwire']\nconnections = 10\nprimary = 'response.p50'\n{line}\n");
    let scenario = LabScenario::parse("bad", &text, "bad.toml", &[]);
    scenario.map(|_| line.to_owned()).unwrap_err().to_string()
}

#[test]
fn twenty_bad_files_get_a_sentence_each_with_the_line_and_the_right_form() {
    for (line, right) in [
        ("rounds = 0", "must be at least 1"),
        ("rounds = 'few'", "such as 1000, 10k or 1m"),
        ("rounds = [1, 2]", "it takes one value"),
        ("rounds", "bad.toml:4: "),
        ("round = 3", "'rounds' is the nearest name"),
        ("\n[load]\nrate = 5", "a scenario has no tables"),
        (
            "message_size = '1GiB'\nrounds = 1",
            "more than the maximum of",
        ),
        ("fragments = '40%:1'", "come to 40 %, not to 100 %"),
        ("workers = 900", "from 1 to 256"),
        (
            "thresholds = ['leaks==0']\nduration = '10s'",
            "takes a load of 60 s at least, and this one lasts 10s",
        ),
        (
            "thresholds = ['lost==0']\nover = 'rate'\nduration = '30m'",
            "give less, such as 10s",
        ),
        ("wombat = 1", "there are description, contestants"),
        ("[rate]\nsteps = 1", "it takes a text, a number"),
        ("tls = 'maybe'", "one of on, off, both"),
        ("columns = ['speed']", "use p(99), min, mean"),
        ("columns = []", "one value at least"),
        ("thresholds = ['p(99)']", "write for example p(99)<5ms"),
        ("thresholds = ['p(99)<fast']", "not a number it can be"),
        ("message_size = '1 parsec'", "such as 512, 16KiB or 1MiB"),
        ("duration = '1 fortnight'", "such as 100ms, 10s or 1h"),
        ("rate = -5", "is not above 0"),
        ("batch = 2", "'batch' and 'batches' go together"),
        ("wait = '1s'", "give 'batch', too"),
        ("duration = '1s'\nmessages = 5", "exclude each other"),
        ("payload = 'cbor'", "one of echo, amplify"),
        ("binary = 'perhaps'", "neither true nor false"),
        ("resolve = 3", "write 0.01 or 1%"),
        ("backends = 1000", "from 1 to 64"),
        ("reconnect = 'later'", "neither 'never' nor a pause"),
        ("hold = true\nrate = 5", "'hold' sends nothing"),
        ("down_for = '1s'", "give 'kill_after', too"),
        ("kill_after = 'soon'", "such as 100ms, 10s or 1h"),
        ("fragments = 'many'", "write WEIGHT:PARTS"),
        ("in_flight = 2026-11-23", "it takes a text, a number"),
        (
            "open_max = 5",
            "give the number of messages after which they close",
        ),
    ] {
        let sentence = mistake_of(line);
        let place = sentence.split(": ").next().unwrap();
        // The three lines before it are as they should be.
        let number = place.strip_prefix("bad.toml:").map(str::parse);
        assert!(matches!(number, Some(Ok(4..=6))), "{line}: {sentence}");
        assert!(sentence.contains(right), "{line}: {sentence}");
        assert!(!sentence.contains('\n'), "{line}: {sentence}");
    }
}

#[test]
fn a_large_message_is_a_mistake_of_its_own_line() {
    let sentence = mistake_of("message_size = '1GiB'\nrounds = 1");
    assert!(
        sentence.starts_with("bad.toml:4: a message of"),
        "{sentence}"
    );
}

#[test]
fn a_soak_that_a_flag_shortens_goes_without_the_threshold_that_takes_longer() {
    let soak = |knobs: &[(&str, &str)]| LabScenario::of_name("soak", &flags(knobs));
    let thresholds = |scenario: &LabScenario| scenario.thresholds.len();
    let (whole, short) = (soak(&[]).unwrap(), soak(&[("duration", "10s")]).unwrap());
    assert_eq!((thresholds(&whole), thresholds(&short)), (3, 2));
    assert_eq!(whole.remarks, [""; 0]);
    let told = "the threshold `leaks==0` is left out: it takes a load of 60 s at least";
    assert_eq!(short.remarks, [told]);
    let asked = [("duration", "10s"), ("thresholds", "leaks==0")];
    let sentence = soak(&asked).unwrap_err().to_string();
    assert!(
        sentence.starts_with("--thresholds: the threshold `leaks==0` takes"),
        "{sentence}"
    );
    let long = soak(&[("over", "rate")]).unwrap_err().to_string();
    assert!(
        long.starts_with("--over: 'over' tries some twenty loads"),
        "{long}"
    );
}

#[test]
fn a_limit_beyond_the_processors_is_a_mistake_of_its_knob() {
    let limited = flags(&[("server_cpu_limit", "99")]);
    let scenario = LabScenario::of_name("latency", &limited).unwrap();
    let sentence = scenario.check_processors(2).unwrap_err().to_string();
    let told = "--server-cpu-limit: 99 is more than the 2 processors there are";
    assert!(sentence.starts_with(told), "{sentence}");
    assert!(scenario.check_processors(128).is_ok());
}

#[test]
fn what_is_needed_is_named() {
    let sentence = |text: &str| {
        let scenario = LabScenario::parse("bad", text, "bad.toml", &[]);
        scenario.map(|_| ()).unwrap_err().to_string()
    };
    assert!(sentence("").contains("it needs 'contestants'"));
    assert!(sentence("contestants = ['a']").contains("it needs 'primary'"));
    let connections = sentence("contestants = ['a']\nprimary = 'p50'");
    assert!(
        connections.contains("it needs 'connections'"),
        "{connections}"
    );
    let wrong = LabScenario::of_name("battle-royale", &[]).unwrap_err();
    assert!(
        wrong.to_string().contains("there are battle-messaging"),
        "{wrong}"
    );
    let flag = LabScenario::of_name("latency", &flags(&[("rate", "fast")])).unwrap_err();
    assert!(flag.to_string().starts_with("--rate: 'fast'"), "{flag}");
}

#[test]
fn stages_are_a_load_and_each_rate_begins_one() {
    let spike = LabScenario::of_name("spike", &[]).unwrap();
    let [load] = &spike.loads()[..] else {
        panic!("one load")
    };
    let stages = "10s:2000,0s:10000,10s:10000,0s:2000,10s:2000";
    assert_eq!(load.parameters.stages.as_deref(), Some(stages));
    assert_eq!(load.parameters.rate_per_s, Some(2000.0));
    let knobs = flags(&[("rate", "100,200"), ("stages", "5s:1k, 5s:0")]);
    let varied = LabScenario::of_name("spike", &knobs).unwrap();
    let from = varied
        .loads()
        .into_iter()
        .map(|load| load.parameters.rate_per_s);
    assert_eq!(from.collect::<Vec<_>>(), [Some(100.0), Some(200.0)]);
    let wrong = LabScenario::of_name("spike", &flags(&[("duration", "5s")])).unwrap_err();
    let sentence = wrong.to_string();
    assert!(
        sentence.starts_with("--duration: 'stages' and 'duration'"),
        "{sentence}"
    );
}

/// What the help calls the default is what it is where nothing is said.
#[test]
fn the_default_of_each_knob_is_what_a_scenario_without_it_has() {
    let base = "contestants = ['moonwire']\nconnections = 5\nprimary = 'rate'\n";
    // What is needed for some of them to have a meaning.
    let surroundings = [
        "kill_after = '1s'\n",
        "link_delay = '1ms'\n",
        "agent = 'localhost:1'\n",
        "over = 'connections'\nthresholds = ['lost==0']\n",
        "payload = 'broadcast'\n",
        "batch = 2\nbatches = 3\n",
        "",
    ];
    let some = LabScenario::parse("a", base, "a.toml", &[]).unwrap();
    // Of the load only what is made of its knobs counts: no list is as good as its default.
    let shown = |text: &str, flags: &[(String, String)]| {
        let mut scenario = LabScenario::parse("a", text, "a.toml", flags).ok()?;
        let loads = scenario.loads();
        scenario.load = some.load.clone();
        scenario.knobs = Knobs::default();
        Some(format!("{scenario:?} {loads:?}"))
    };
    let mut checked = 0;
    for knob in KNOBS {
        let Some(default) = knob.default else {
            continue;
        };
        let others = surroundings.iter().filter(|it| !it.starts_with(knob.name));
        let fits = others.filter_map(|more| {
            let text = format!("{base}{more}");
            let with = shown(&text, &flags(&[(knob.name, default)]))?;
            Some((shown(&text, &[])?, with))
        });
        let fits: Vec<(String, String)> = fits.collect();
        assert!(!fits.is_empty(), "{}", knob.name);
        for (without, with) in fits {
            assert_eq!(without, with, "{}", knob.name);
        }
        checked += 1;
    }
    assert!(checked > 20);
}
