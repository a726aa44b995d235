//! Whether the lab's verdicts hold: comparisons of a server with itself, and with the same server
//! made slower, each drawn from rounds that were recorded in one battle.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::faulty::write_contestant;
use super::program::Programs;
use super::table::Table;

/// Rounds of each server in the pool: two draws of as many as the tool recommends, which is some 60
/// to 100 as the machine is.
const ROUNDS: usize = 240;
/// Rounds from which the tool says how many it needs.
const PILOT: usize = 20;
/// What the server multiplies for each message: some 15 us.
const WORK: u64 = 100_000;
/// How much slower the other one is.
const SLOWER: f64 = 0.03;
const SAME_DRAWS: usize = 200;
/// Of 200 draws at a level of 5 %: more than this many in 1 of 100 cases.
const SAME_ALARMS_MAX: usize = 17;
const SLOWER_DRAWS: usize = 100;
const SLOWER_TOLD_MIN: usize = 84;
const SAME_LIVE: usize = 10;
const SAME_LIVE_ALARMS_MAX: usize = 2;
const SLOWER_LIVE: usize = 5;
const SECONDS_MAX: f64 = 1200.0;
/// Fixes the draws.
const SEED: u64 = 20_261_124;

/// Records the pools and draws from them; with `is_live` measures comparisons of their own, too.
pub(crate) fn judged(programs: &Programs, is_live: bool, table: &mut Table) -> Result<()> {
    let lab = Lab::new(programs)?;
    let started = Instant::now();
    let pool = lab.battle(&["base", "slower"], ROUNDS, 1)?;
    let seconds = started.elapsed().as_secs_f64();
    let (base, slower) = (cells(&pool, "base"), cells(&pool, "slower"));
    ensure!(
        base.len() == ROUNDS && slower.len() == ROUNDS,
        "of {ROUNDS} rounds {} and {} were measured",
        base.len(),
        slower.len()
    );
    table.line(
        format!("{ROUNDS} rounds of a server and of the same {SLOWER} slower, recorded"),
        format!("{seconds:.0} s"),
        format!("{SECONDS_MAX} s"),
        seconds <= SECONDS_MAX,
    );
    let all = lab.compare(&pool, &base, &slower)?;
    let (relative, low, high) = (
        all.number("relative")?,
        all.number("low")?,
        all.number("high")?,
    );
    table.line(
        "the slower one beside the other, over all rounds",
        format!("{relative:+.4} [{low:+.4}, {high:+.4}]"),
        "told",
        all.is_told()?,
    );
    let needed = lab
        .compare(&pool, &base[..PILOT], &slower[..PILOT])?
        .needed()?;
    let fits = 2 * needed <= ROUNDS;
    table.line(
        format!("rounds that the tool recommends after {PILOT}, to tell {SLOWER}"),
        needed.to_string(),
        format!("at most {}, half of the pool", ROUNDS / 2),
        fits,
    );
    ensure!(
        fits,
        "the pool is too small for two draws of {needed} rounds"
    );
    lab.draws(&pool, base, slower, needed, table)?;
    if is_live {
        lab.live(needed, table)?;
    }
    Ok(())
}

/// Three servers: two that are the same and one that is slower.
struct Lab<'a> {
    programs: &'a Programs,
    folder: tempfile::TempDir,
}

impl<'a> Lab<'a> {
    fn new(programs: &'a Programs) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let contestants = folder.path().join("contestants");
        std::fs::create_dir(&contestants)?;
        let slower = slower_work(programs)?;
        for (name, times) in [("base", WORK), ("same", WORK), ("slower", slower)] {
            let fault = ["work", &times.to_string()];
            write_contestant(&contestants, name, programs, &fault)?;
        }
        std::fs::write(folder.path().join("pool.toml"), SCENARIO)?;
        Ok(Self { programs, folder })
    }

    /// A battle of these, and what its Run file holds.
    fn battle(&self, contestants: &[&str], rounds: usize, seed: usize) -> Result<Value> {
        let text = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .context("a path is not UTF-8")
        };
        let run = self.programs.lab(&[
            "run",
            &text(&self.folder.path().join("pool.toml"))?,
            "--contestant-folder",
            &text(&self.folder.path().join("contestants"))?,
            "--contestants",
            &contestants.join(","),
            "--rounds",
            &rounds.to_string(),
            "--seed",
            &seed.to_string(),
        ])?;
        Ok(run.value().clone())
    }

    /// What the tool says of two sets of rounds.
    fn compare(&self, run: &Value, one: &[Value], other: &[Value]) -> Result<Verdict> {
        let write = |name: &str, cells: &[Value]| -> Result<std::path::PathBuf> {
            let mut drawn = run.clone();
            drawn["cells"] = json!(cells);
            let file = self.folder.path().join(name);
            std::fs::write(&file, drawn.to_string())?;
            Ok(file)
        };
        let (one, other) = (write("one.json", one)?, write("other.json", other)?);
        let found = self.programs.compare(&one, &other)?;
        let section = found
            .pointer("/sections/0")
            .context("nothing was compared")?;
        Ok(Verdict(section.clone()))
    }

    /// Comparisons of rounds drawn from the pool: of the server with itself without replacement,
    /// and with the slower one.
    fn draws(
        &self,
        pool: &Value,
        mut base: Vec<Value>,
        mut slower: Vec<Value>,
        needed: usize,
        table: &mut Table,
    ) -> Result<()> {
        let mut random = Random(SEED);
        let (mut alarms, mut told) = (0, 0);
        for _ in 0..SAME_DRAWS {
            random.shuffle(&mut base);
            let (one, other) = (&base[..needed], &base[needed..2 * needed]);
            alarms += usize::from(self.compare(pool, one, other)?.is_told()?);
        }
        table.line(
            format!("alarms of {SAME_DRAWS} comparisons of the server with itself"),
            alarms.to_string(),
            format!("at most {SAME_ALARMS_MAX}"),
            alarms <= SAME_ALARMS_MAX,
        );
        for _ in 0..SLOWER_DRAWS {
            random.shuffle(&mut base);
            random.shuffle(&mut slower);
            let (one, other) = (&base[..needed], &slower[..needed]);
            told += usize::from(self.compare(pool, one, other)?.is_told()?);
        }
        table.line(
            format!("told apart of {SLOWER_DRAWS} comparisons with the slower one"),
            told.to_string(),
            format!("at least {SLOWER_TOLD_MIN}"),
            told >= SLOWER_TOLD_MIN,
        );
        Ok(())
    }

    /// Comparisons with rounds of their own, interleaved as in any battle.
    fn live(&self, needed: usize, table: &mut Table) -> Result<()> {
        let told = |other: &str, count: usize| -> Result<usize> {
            let mut told = 0;
            for number in 0..count {
                let run = self.battle(&["base", other], needed, 100 + number)?;
                let (one, another) = (cells(&run, "base"), cells(&run, other));
                told += usize::from(self.compare(&run, &one, &another)?.is_told()?);
            }
            Ok(told)
        };
        let alarms = told("same", SAME_LIVE)?;
        let found = told("slower", SLOWER_LIVE)?;
        table.line(
            format!("alarms of {SAME_LIVE} live comparisons, {needed} rounds each"),
            alarms.to_string(),
            format!("at most {SAME_LIVE_ALARMS_MAX}"),
            alarms <= SAME_LIVE_ALARMS_MAX,
        );
        table.line(
            format!("told apart of {SLOWER_LIVE} live comparisons with the slower one"),
            found.to_string(),
            format!("all {SLOWER_LIVE}"),
            found == SLOWER_LIVE,
        );
        Ok(())
    }
}

/// What `compare` says of a contestant.
struct Verdict(Value);

impl Verdict {
    fn is_told(&self) -> Result<bool> {
        let told = self.0.pointer("/metrics/0/is_told");
        told.and_then(Value::as_bool).context("no verdict")
    }

    fn number(&self, key: &str) -> Result<f64> {
        let number = self.0["metrics"][0][key].as_f64();
        number.with_context(|| format!("no {key}"))
    }

    fn needed(&self) -> Result<usize> {
        let needed = self.0["rounds_needed"]
            .as_u64()
            .context("no recommendation")?;
        Ok(usize::try_from(needed)?)
    }
}

/// The cells of one contestant, in the order of their rounds.
fn cells(run: &Value, contestant: &str) -> Vec<Value> {
    let all = run["cells"].as_array().into_iter().flatten();
    let own = all.filter(|cell| cell["contestant"] == contestant);
    own.cloned().collect()
}

/// How often the slower one multiplies, so that a message costs it so much more CPU in all.
fn slower_work(programs: &Programs) -> Result<u64> {
    let cost_ns = |times: u64| -> Result<f64> {
        let mut costs = Vec::new();
        for _ in 0..CALIBRATIONS {
            let server = programs.faulty(&["work", &times.to_string()])?;
            let run = programs.load(None, &server.url, "-t 1 -c 20 -p 1 -d 2s")?;
            costs.push(run.number("/server/cpu_ns_per_message")?);
        }
        costs.sort_by(f64::total_cmp);
        Ok(costs[CALIBRATIONS / 2])
    };
    let (less, base) = (cost_ns(WORK / 2)?, cost_ns(WORK)?);
    let each_ns = (base - less) / (WORK - WORK / 2) as f64;
    ensure!(
        each_ns > 0.0,
        "more work costs no more: {less} ns and {base} ns"
    );
    Ok(WORK + (base * SLOWER / each_ns) as u64)
}

const CALIBRATIONS: usize = 5;

/// The server has no time left: at 4,000 messages a second, with a wake for each, what a message
/// costs scatters by 12 % from round to round, and so by 2 %.
const SCENARIO: &str = "description = 'a pool of rounds'
contestants = ['base', 'slower']
connections = 20
message_size = 64
duration = '1s'
drain = '1s'
primary = 'server.cpu_per_message'
columns = ['server.cpu_per_message', 'response.p50']
";

/// Draws that come again (the mixer of SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (1..values.len()).rev() {
            let place = self.next() % (end as u64 + 1);
            values.swap(end, place as usize);
        }
    }
}
