//! What a well-behaved neighbour feels of each attack: its p99 with and without, in pairs.
//!
//! The server has a processor for itself, with one worker, so that what the neighbour feels is what
//! the attack does to the server. The attacker shares the generator's, at idle priority: attackers
//! take no time from the clients of others. Threads of idle priority keep both from
//! halting, because a host that is slow to wake them is slower than any attack.
//!
//! What counts is the time from when a message was sent to its reply. The load is an open loop
//! without a bound on what is in flight, so no message waits for the reply to another, and a server
//! that stalls is seen by all that are sent meanwhile. The time from when it should have been sent
//! is told beside it: that adds what the generator waits for its processor, which the kernel also
//! spends on what the attacker sends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::disturbance::{HostMoment, wait_for_quiet_host};
use super::program::Programs;
use super::spinner::{Priority, Spinner};
use super::table::Table;

/// Pairs of runs for each attack, one with it and one without.
const PAIRS: usize = 7;
/// Seconds of one run: 12,000 messages. What the host takes in moments of 10 ms would decide the
/// p99 of much fewer.
const RUN_S: u32 = 6;
/// Seconds of an attack: from before the clients connect until after they have gone.
const ATTACK_S: u32 = RUN_S + 1;
/// The share of its attacks, in percent, that an attacker must get through for its rate to count.
const STRIKES_MIN: u32 = 90;
/// The load of the neighbour: connections, and messages per second over all of them.
const NEIGHBOUR: &str = "-t 1 -c 50 -q 2000";
/// The share of the machine that the host may take during a pair; one that lost more does not
/// count, because a p99 is of one message in a hundred.
const STOLEN_MAX: f64 = 0.002;
/// How long we wait for quiet, from the first pair on; then each pair is run when it is due.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(5400);
/// Pairs of an attack that do not count before we give up.
const DISTURBED_MAX: usize = 14;
const SERVER_CORE: u8 = 0;
const CLIENT_CORE: u8 = 1;
/// What the median of the ratios may be.
const RATIO_MAX: f64 = 1.10;
/// Handshakes held open while new clients connect, and those clients.
const HELD: usize = 10_000;
const NEW_CLIENTS: u32 = 1000;

/// Attacks by name, with how often a second each is made.
pub(crate) type Attacks = Vec<(String, u32)>;

/// Those with these names, or all.
pub(crate) fn chosen(programs: &Programs, names: &[&str]) -> Result<Attacks> {
    let mut attacks = programs.attacks()?;
    for name in names {
        let is_known = attacks.iter().any(|(known, _)| known == name);
        let known = attacks.iter().map(|(known, _)| format!("\n  {known}"));
        ensure!(
            is_known,
            "there is no attack `{name}`, but{}",
            known.collect::<String>()
        );
    }
    attacks.retain(|(known, _)| names.is_empty() || names.contains(&known.as_str()));
    Ok(attacks)
}

/// Each attack of the catalogue at its own rate. All are gone through seven times, so that a bad
/// minute of the machine is not one attack's alone; those whose pair was disturbed come again.
pub(crate) fn neighbour(programs: &Programs, attacks: Attacks, table: &mut Table) -> Result<()> {
    // Without the programs for it the cores halt, and the table says how slow that makes them.
    let _awake = [SERVER_CORE, CLIENT_CORE].map(|core| Spinner::start(core, Priority::Idle).ok());
    let end_of_waiting = Instant::now() + QUIET_WAIT_MAX;
    let mut trials: Vec<Trial> = attacks.into_iter().map(Trial::new).collect();
    for round in 0.. {
        let mut wanted: Vec<&mut Trial> = trials
            .iter_mut()
            .filter(|trial| trial.is_wanted())
            .collect();
        if wanted.is_empty() {
            break;
        }
        // So that each comes now before and now after the run without it.
        for two in wanted.chunks_mut(2) {
            wait_for_quiet_host(STOLEN_MAX, end_of_waiting)?;
            Trial::pair(two, round % 2 == 1, programs)?;
        }
    }
    for trial in trials {
        trial.tell(table);
    }
    Ok(())
}

/// One attack, and the pairs of runs with and without it.
struct Trial {
    name: String,
    per_s: u32,
    ratios: Vec<f64>,
    /// The same from the intended time on.
    intended_ratios: Vec<f64>,
    /// Without the attack.
    p99s_us: Vec<f64>,
    lost: u64,
    /// How often the attacker came in the pair in which it came least often.
    strikes: Option<u32>,
    /// Pairs that do not count.
    disturbed: usize,
}

impl Trial {
    fn new((name, per_s): (String, u32)) -> Self {
        Self {
            name,
            per_s,
            ratios: Vec::new(),
            intended_ratios: Vec::new(),
            p99s_us: Vec::new(),
            lost: 0,
            strikes: None,
            disturbed: 0,
        }
    }

    fn is_wanted(&self) -> bool {
        self.ratios.len() < PAIRS && self.disturbed < DISTURBED_MAX
    }

    /// A run without any attack between the runs with one and with another: a pair for each. One
    /// that has no other comes before it or, if `is_after`, after it.
    fn pair(trials: &mut [&mut Self], is_after: bool, programs: &Programs) -> Result<()> {
        let mut order: Vec<Option<usize>> = match trials.len() {
            1 => vec![Some(0), None],
            _ => vec![Some(0), None, Some(1)],
        };
        if is_after {
            order.reverse();
        }
        let mut moments = vec![HostMoment::now()?];
        let mut felt = Vec::new();
        for &with in &order {
            felt.push(run(
                programs,
                with.map(|place| trials[place].name.as_str()),
            )?);
            moments.push(HostMoment::now()?);
        }
        let without = order.iter().position(Option::is_none).unwrap_or(0);
        for (at, place) in order.iter().enumerate() {
            if let Some(place) = *place {
                let (first, last) = (at.min(without), at.max(without));
                let stolen = moments[last + 1].stolen_since(moments[first]);
                trials[place].add(&felt[at], &felt[without], stolen);
            }
        }
        Ok(())
    }

    fn add(&mut self, with: &Felt, without: &Felt, stolen: f64) {
        self.lost += with.lost + without.lost;
        let ratio = with.p99_us / without.p99_us;
        let counts = stolen <= STOLEN_MAX;
        eprintln!(
            "   {}: {:.0} us with, {:.0} us without, {ratio:.2}; the host took {:.1} %{}",
            self.name,
            with.p99_us,
            without.p99_us,
            100.0 * stolen,
            if counts { "" } else { ": does not count" }
        );
        if !counts {
            self.disturbed += 1;
            return;
        }
        self.ratios.push(ratio);
        let intended_ratio = with.intended_p99_us / without.intended_p99_us;
        self.intended_ratios.push(intended_ratio);
        self.p99s_us.push(without.p99_us);
        let least = self.strikes.unwrap_or(with.strikes);
        self.strikes = Some(least.min(with.strikes));
    }

    fn tell(mut self, table: &mut Table) {
        let (name, per_s) = (&self.name, self.per_s);
        let (ratio, p99_us) = (median(&mut self.ratios), median(&mut self.p99s_us));
        let intended_ratio = median(&mut self.intended_ratios);
        let spread = (self.ratios.first().copied()).zip(self.ratios.last().copied());
        let (least, most) = spread.unwrap_or((f64::NAN, f64::NAN));
        let (lost, disturbed, pairs) = (self.lost, self.disturbed, self.ratios.len());
        let (strikes, planned) = (self.strikes.unwrap_or(0), per_s * ATTACK_S);
        table.line(
            format!("{name}, {per_s}/s: p99 of the neighbour with / without"),
            format!(
                "{ratio:.2} [{least:.2}, {most:.2}] of {pairs} pairs, {disturbed} disturbed by the \
                 host, {p99_us:.0} us without, {intended_ratio:.2} from the intended time, {lost} \
                 lost, attacked {strikes} of {planned} times"
            ),
            format!("{RATIO_MAX:.2}, 0 lost, {STRIKES_MIN} % of the attacks"),
            ratio <= RATIO_MAX
                && lost == 0
                && pairs == PAIRS
                && 100 * strikes >= STRIKES_MIN * planned,
        );
    }
}

/// What one run was like for the neighbour.
struct Felt {
    p99_us: f64,
    intended_p99_us: f64,
    lost: u64,
    /// How often the attacker came meanwhile.
    strikes: u32,
}

fn run(programs: &Programs, attack: Option<&str>) -> Result<Felt> {
    let server = programs.serve(Some(SERVER_CORE), &["--workers", "1"])?;
    let seconds = ATTACK_S.to_string();
    let attacker = attack.map(|name| {
        let arguments = [name, &seconds];
        Attacker::start(programs.attacker(&server, Some(CLIENT_CORE), &arguments))
    });
    let attacker = attacker.transpose()?;
    let url = format!("{}/echo", server.url);
    let load = format!("{NEIGHBOUR} -d {RUN_S}s");
    let run = programs.load(Some(CLIENT_CORE), &url, &load)?;
    Ok(Felt {
        p99_us: run.number("/latency/service/p99_us")?,
        intended_p99_us: run.number("/latency/response/p99_us")?,
        lost: run.count("/messages/lost")?,
        strikes: attacker.map_or(Ok(0), Attacker::strikes).unwrap_or(0),
    })
}

/// New clients while slow handshakes are held open.
pub(crate) fn slow_handshakes(programs: &Programs, table: &mut Table) -> Result<()> {
    let server = programs.serve(None, &[])?;
    let held = HELD.to_string();
    let mut attacker = Attacker::start(programs.attacker(&server, None, &["hold", &held, "60"]))?;
    attacker.await_line(&held)?;
    let url = format!("{}/echo", server.url);
    let arguments = format!("-t 1 -c {NEW_CLIENTS} --conn-concurrency 0 -n {NEW_CLIENTS} -p 1");
    let run = programs.load(None, &url, &arguments)?;
    drop(attacker);
    let last_ms = run.number("/connects/all_online_ms")?;
    let made = run.count("/connects/ok")?;
    table.line(
        format!("{NEW_CLIENTS} new clients beside {HELD} slow handshakes: to the last 101"),
        format!("{last_ms:.0} ms, {made} connected"),
        format!("1000 ms, {NEW_CLIENTS}"),
        last_ms <= 1000.0 && made == u64::from(NEW_CLIENTS),
    );
    Ok(())
}

/// An attack in a process of its own, ended when dropped.
struct Attacker {
    child: Child,
}

impl Attacker {
    fn start(mut command: Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { child })
    }

    /// Waits until it says something with `word` in it.
    fn await_line(&mut self, word: &str) -> Result<()> {
        let output = self.child.stdout.take().context("the output is piped")?;
        let mut lines = BufReader::new(output).lines();
        let found = lines.any(|line| line.is_ok_and(|line| line.contains(word)));
        ensure!(found, "the attacker ended early");
        Ok(())
    }

    /// Waits until it ends by itself; how often it attacked.
    fn strikes(mut self) -> Result<u32> {
        let output = self.child.stdout.take().context("the output is piped")?;
        let said = std::io::read_to_string(output).context("the attacker")?;
        let count = said.trim().strip_prefix("strikes ");
        let count = count.and_then(|count| count.parse().ok());
        count.with_context(|| format!("the attacker said {said:?} instead of its strikes"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sorts them, too.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
