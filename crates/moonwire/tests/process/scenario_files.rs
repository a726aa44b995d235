//! Scenario files with a mistake, as a user meets them: one sentence with the file, the line and
//! what would be right, and nothing is started.

use std::fs;

use crate::harness::{moonwire, run};

const BAD_CONFIGURATION: i32 = 104;

/// Lines that follow three which are right, the line of the mistake, and a part of the sentence.
const FILES: [(&str, usize, &str); 50] = [
    ("rounds = 0", 4, "must be at least 1"),
    ("rounds = 'few'", 4, "such as 1000, 10k or 1m"),
    ("rounds = [1, 2]", 4, "it takes one value"),
    ("\n\nround = 3", 6, "'rounds' is the nearest name"),
    (
        "rounds = 1\n[load]\nrate = 5",
        5,
        "a scenario has no tables",
    ),
    ("control = 'nosuch'", 4, "does not take part: give one of"),
    ("backend = 'nosuch'", 4, "there is no server 'nosuch'"),
    ("cross_check = 'nosuch'", 4, "there is no client 'nosuch'"),
    (
        "\nmessage_size = '1GiB'\nrounds = 1",
        5,
        "more than the maximum of",
    ),
    ("fragments = '40%:1'", 4, "come to 40 %"),
    ("server_cpu_limit = 900", 4, "which limits nobody"),
    ("workers = 900", 4, "from 1 to 256"),
    ("wombat = 1", 4, "there are description, contestants"),
    ("rounds = 1\nrounds = 2", 5, "duplicate key"),
    ("rounds = ", 4, "expected"),
    ("tls = 'maybe'", 4, "one of on, off, both"),
    ("columns = ['speed']", 4, "use p(99), min, mean"),
    ("thresholds = ['p(99)']", 4, "write for example p(99)<5ms"),
    ("thresholds = ['p(99)<fast']", 4, "not a number it can be"),
    (
        "thresholds = ['server.memory_peak<5ms']",
        4,
        "such as 100MiB",
    ),
    ("message_size = '1 parsec'", 4, "such as 512, 16KiB or 1MiB"),
    ("duration = '1 fortnight'", 4, "such as 100ms, 10s or 1h"),
    ("rate = -5", 4, "is not above 0"),
    (
        "rounds = 2\nbatch = 2",
        5,
        "'batch' and 'batches' go together",
    ),
    ("duration = '1s'\nmessages = 5", 5, "exclude each other"),
    ("payload = 'cbor'", 4, "one of echo, amplify"),
    ("backends = 1000", 4, "from 1 to 64"),
    ("reconnect = 'later'", 4, "neither 'never' nor a pause"),
    ("down_for = '1s'", 4, "give 'kill_after', too"),
    ("link_loss = '200%'", 4, "share"),
    ("link_queue = '1MiB'", 4, "give 'link_delay'"),
    ("open_max = 5", 4, "'per_connection'"),
    ("stages = '10s'", 4, "such as 10s:1k"),
    (
        "stages = ['1s:1k', 'soon:2k']",
        4,
        "such as 100ms, 10s or 1h",
    ),
    ("stages = ['1s:0', '5s:0']", 4, "sends nothing"),
    ("stages = '25h:1k'", 4, "longer than 24h"),
    ("stages = '1s:1k'\nrate = '20m'", 4, "are not from 0 to"),
    ("stages = '1s:1k'\nduration = '5s'", 5, "exclude each other"),
    (
        "batch = 1\nbatches = 2\nstages = '1s:1k'",
        6,
        "exclude each other",
    ),
    (
        "stages = '1s:1k'\nper_connection = 2",
        5,
        "exclude each other",
    ),
    ("stages = '1s:1k'\nhold = true", 5, "exclude each other"),
    (
        "thresholds = ['lost==0']\nover = 'connections'\nstages = '1s:1k'",
        6,
        "leave out 'stages'",
    ),
    ("over = 'rate'", 4, "give one at least, such as thresholds"),
    ("message_size = [64, '64']", 4, "comes up twice"),
    ("poisson = true", 4, "give 'rate' or 'stages', too"),
    ("one_way_bound = '1ms'", 4, "give 'agent', too"),
    (
        "thresholds = ['lost==0']\nover = 'connections'\nfrom = 10.5",
        6,
        "give a whole number",
    ),
    (
        "thresholds = ['lost==0']\nover = 'rate'\nkill_after = '1s'",
        6,
        "leave one of them out",
    ),
    (
        "thresholds = ['lost==0']\nover = 'rate'\nconfirm = '0s'",
        6,
        "must be more than 0",
    ),
    (
        "thresholds = ['lost==0']\nthink = '1s'\nover = 'rate'",
        6,
        "a time to think",
    ),
];

#[test]
fn each_mistake_is_one_sentence_with_file_line_and_the_right_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    for (lines, line, right) in FILES {
        let head = "contestants = ['moonwire']\nconnections = 10\nprimary = 'response.p50'\n";
        fs::write(&path, format!("{head}{lines}\n")).unwrap();
        let mut lab = moonwire();
        lab.current_dir(folder.path())
            .args(["lab", "run", "mine.toml"]);
        let outcome = run(&mut lab);
        assert_eq!(
            outcome.code,
            Some(BAD_CONFIGURATION),
            "{lines}: {outcome:?}"
        );
        let said = &outcome.stderr;
        let place = format!("moonwire: mine.toml:{line}: ");
        assert!(said.starts_with(&place), "{lines}: {said}");
        assert!(said.contains(right), "{lines}: {said}");
        assert_eq!(said.lines().count(), 1, "{lines}: {said}");
        assert!(!folder.path().join("results").exists(), "{lines}");
    }
}

#[test]
fn a_contestant_that_is_not_known_is_a_mistake_of_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "connections = 10\ncontestants = ['nosuch']\nprimary = 'response.p50'\n";
    fs::write(folder.path().join("mine.toml"), text).unwrap();
    let mut lab = moonwire();
    lab.current_dir(folder.path())
        .args(["lab", "run", "mine.toml"]);
    let outcome = run(&mut lab);
    assert_eq!(outcome.code, Some(BAD_CONFIGURATION), "{outcome:?}");
    let told = "moonwire: mine.toml:2: contestants: there is no contestant 'nosuch'; there are ";
    assert!(outcome.stderr.starts_with(told), "{outcome:?}");
}
