//! What a well-behaved neighbour feels of each attack: its p99 with and without, in pairs.
//!
//! The server has a processor for itself, with one worker, so that what the neighbour feels is what
//! the attack does to the server. The attacker shares the generator's, at idle priority: attackers
//! take no time from the clients of others. Threads of idle priority keep both from
//! halting, because a host that is slow to wake them is slower than any attack.
//!
//! The attack goes on and off in turns while one generator sends to one server: two processes of
//! the same program differ by a third, and a host that others use is another one a minute later.
//!
//! What counts is the time from when a message was sent to its reply. The load is an open loop
//! without a bound on what is in flight, so no message waits for the reply to another, and a server
//! that stalls is seen by all that are sent meanwhile. The time from when it should have been sent
//! is told beside it: that adds what the generator waits for its processor, which the kernel also
//! spends on what the attacker sends.
//!
//! A control attacks another server instead, which gets of the same processor what the neighbour's
//! does not want: what the neighbour feels then is the price of two processors that share one
//! kernel and one cache, and none of its server's doing. As the other server waits behind whatever
//! runs, up to some milliseconds, it serves attacks in batches.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::disturbance::{HostMoment, wait_for_quiet_host};
use super::program::Programs;
use super::run_file::RunFile;
use super::spinner::{Priority, Spinner};
use super::table::Table;
use crate::server::Server;

/// Pairs for each attack, of a time with it and one without.
const PAIRS: usize = 7;
/// Seconds of each of the two. Of each second there is a p99 of 2000 messages; the first and the
/// last are left out, as the generator's begin up to a second after ours, and the median of those
/// of the others that the host left alone stands for all.
const WINDOW_S: usize = 5;
/// Seconds of a run before the first pair.
const LEAD_S: usize = 2;
/// The share of its attacks, in percent, that an attacker must get through for its rate to count.
const STRIKES_MIN: u32 = 90;
/// The load of the neighbour: connections, and messages per second over all of them.
const NEIGHBOUR: &str = "-t 1 -c 50 -q 2000";
/// The share of the machine that the host may take during a second; one that lost more does not
/// count, because a p99 is of one message in a hundred. Of two seconds of ours, which one of the
/// generator's is within, it is less than a tick: none at all.
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

/// What is measured first: by how much two times without any attack differ.
const NO_ATTACK: &str = "no attack";

/// Those with these names, or all.
pub(crate) fn chosen(programs: &Programs, names: &[&str]) -> Result<Attacks> {
    let mut attacks = vec![(NO_ATTACK.to_string(), 0)];
    attacks.extend(programs.attacks()?);
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

/// Who is attacked beside the neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Victim {
    /// The neighbour's own server.
    Server,
    /// Another one, which gives way to it: the control.
    Another,
}

/// What happens to a pair of which the host left no second alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Disturbed {
    /// It is run again, up to [`DISTURBED_MAX`] times for each attack.
    Repeated,
    /// It counts like any other, and the table says how many did: on a host that is never quiet
    /// this tells little, but of every attack and in bounded time.
    Counted,
}

/// Each attack of the catalogue at its own rate, until there are enough pairs of each.
pub(crate) fn neighbour(
    programs: &Programs,
    attacks: Attacks,
    victim: Victim,
    disturbed: Disturbed,
    table: &mut Table,
) -> Result<()> {
    // Without the programs for it the cores halt, and the table says how slow that makes them.
    let _awake = [SERVER_CORE, CLIENT_CORE].map(|core| Spinner::start(core, Priority::Idle).ok());
    let end_of_waiting = Instant::now() + QUIET_WAIT_MAX;
    for attack in attacks {
        let mut trial = Trial::new(attack, victim, disturbed);
        while trial.wanted() > 0 {
            if disturbed == Disturbed::Repeated {
                wait_for_quiet_host(STOLEN_MAX, end_of_waiting)?;
            }
            trial.run(programs)?;
        }
        trial.tell(table);
    }
    Ok(())
}

/// One attack, and the pairs of times with and without it.
struct Trial {
    name: String,
    per_s: u32,
    victim: Victim,
    policy: Disturbed,
    ratios: Vec<f64>,
    /// The same from the intended time on.
    intended_ratios: Vec<f64>,
    /// Without the attack.
    p99s_us: Vec<f64>,
    lost: u64,
    /// How often the attacker came in the time in which it came least often.
    strikes_min: Option<u32>,
    /// Pairs of which the host left no second alone in one half.
    disturbed: usize,
}

impl Trial {
    fn new((name, per_s): (String, u32), victim: Victim, policy: Disturbed) -> Self {
        Self {
            name,
            per_s,
            victim,
            policy,
            ratios: Vec::new(),
            intended_ratios: Vec::new(),
            p99s_us: Vec::new(),
            lost: 0,
            strikes_min: None,
            disturbed: 0,
        }
    }

    /// Pairs that are still to be run.
    fn wanted(&self) -> usize {
        match self.policy == Disturbed::Counted || self.disturbed < DISTURBED_MAX {
            true => PAIRS - self.ratios.len(),
            false => 0,
        }
    }

    /// One run with all the pairs that are wanted.
    fn run(&mut self, programs: &Programs) -> Result<()> {
        let pairs = self.wanted();
        let server = programs.serve(Some(SERVER_CORE), &["--workers", "1"])?;
        let another = match self.victim {
            Victim::Server => None,
            Victim::Another => Some(programs.serve_aside(SERVER_CORE)?),
        };
        let victim = another.as_ref().unwrap_or(&server);
        let url = format!("{}/echo", server.url);
        let seconds = LEAD_S + 2 * WINDOW_S * pairs + 1;
        let load = format!("{NEIGHBOUR} -d {seconds}s");
        let begin = Instant::now();
        let (run, moments) = thread::scope(|scope| {
            let run = scope.spawn(|| programs.load(Some(CLIENT_CORE), &url, &load));
            let moments = self.attack(programs, victim, begin, pairs);
            let run = run.join();
            let run = run.expect("a run that fails is an error, not a panic");
            (run, moments)
        });
        let (run, moments) = (run?, moments?);
        self.lost += run.count("/messages/lost")?;
        let stolen: Vec<f64> = moments
            .windows(3)
            .map(|three| three[2].stolen_since(three[0]))
            .collect();
        for pair in 0..pairs {
            self.add(&run, pair, &stolen)?;
        }
        Ok(())
    }

    /// Attacks in one half of each pair, now the first and now the second; what the host has taken
    /// at the begin of each second.
    fn attack(
        &mut self,
        programs: &Programs,
        server: &Server,
        begin: Instant,
        pairs: usize,
    ) -> Result<Vec<HostMoment>> {
        let wait_for = |second: usize| {
            let due = begin + Duration::from_secs(second as u64);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        };
        let end = LEAD_S + 2 * pairs * WINDOW_S;
        thread::scope(|scope| {
            let moments = scope.spawn(|| {
                let moment = |second| {
                    wait_for(second);
                    HostMoment::now()
                };
                (0..=end).map(moment).collect()
            });
            for window in (0..2 * pairs).filter(|window| is_attacked(*window)) {
                wait_for(LEAD_S + window * WINDOW_S);
                if self.per_s > 0 {
                    let arguments = [self.name.as_str(), &WINDOW_S.to_string()];
                    let command = programs.attacker(server, Some(CLIENT_CORE), &arguments);
                    let strikes = Attacker::start(command)?.strikes()?;
                    let fewest = self.strikes_min.map_or(strikes, |min| min.min(strikes));
                    self.strikes_min = Some(fewest);
                }
            }
            moments.join().expect("what fails there is an error")
        })
    }

    /// Takes a pair of a run in, if the host left a second of each half alone.
    fn add(&mut self, run: &RunFile, pair: usize, stolen: &[f64]) -> Result<()> {
        let (first, second) = (2 * pair, 2 * pair + 1);
        let (attacked, calm) = match is_attacked(first) {
            true => (first, second),
            false => (second, first),
        };
        let mut with = quiet_seconds(attacked, stolen);
        let mut without = quiet_seconds(calm, stolen);
        if with.is_empty() || without.is_empty() {
            eprintln!("   {}: the host left no second alone", self.name);
            self.disturbed += 1;
            if self.policy == Disturbed::Repeated {
                return Ok(());
            }
            with = inner_seconds(attacked).collect();
            without = inner_seconds(calm).collect();
        }
        let with_us = p99_us(run, "service", &with)?;
        let without_us = p99_us(run, "service", &without)?;
        let ratio = with_us / without_us;
        eprintln!(
            "   {}: {with_us:.0} us with, {without_us:.0} us without, {ratio:.2}; {} and {} of {} \
             seconds count",
            self.name,
            with.len(),
            without.len(),
            WINDOW_S - 2
        );
        self.ratios.push(ratio);
        self.p99s_us.push(without_us);
        let intended = p99_us(run, "response", &with)? / p99_us(run, "response", &without)?;
        self.intended_ratios.push(intended);
        Ok(())
    }

    fn tell(mut self, table: &mut Table) {
        let (name, per_s) = (&self.name, self.per_s);
        let (ratio, p99_us) = (median(&mut self.ratios), median(&mut self.p99s_us));
        let intended_ratio = median(&mut self.intended_ratios);
        let spread = (self.ratios.first().copied()).zip(self.ratios.last().copied());
        let (least, most) = spread.unwrap_or((f64::NAN, f64::NAN));
        let (lost, disturbed, pairs) = (self.lost, self.disturbed, self.ratios.len());
        let (strikes, planned) = (self.strikes_min.unwrap_or(0), per_s * WINDOW_S as u32);
        let (limit, ratio_max) = match self.victim {
            Victim::Server if per_s > 0 => (format!("{RATIO_MAX:.2}, "), RATIO_MAX),
            Victim::Server | Victim::Another => {
                (String::from("no limit to the ratio, "), f64::INFINITY)
            }
        };
        let whom = match self.victim {
            Victim::Server => "",
            Victim::Another => " at another server",
        };
        table.line(
            format!("{name}, {per_s}/s{whom}: p99 of the neighbour with / without"),
            format!(
                "{ratio:.2} [{least:.2}, {most:.2}] of {pairs} pairs, {disturbed} disturbed by the \
                 host, {p99_us:.0} us without, {intended_ratio:.2} from the intended time, {lost} \
                 lost, attacked {strikes} of {planned} times"
            ),
            format!("{limit}0 lost, {STRIKES_MIN} % of the attacks"),
            ratio <= ratio_max
                && lost == 0
                && pairs == PAIRS
                && 100 * strikes >= STRIKES_MIN * planned,
        );
    }
}

/// In which half of a pair the attack is: the first and the second in turns.
fn is_attacked(window: usize) -> bool {
    matches!(window % 4, 0 | 3)
}

/// The generator's seconds of a window that count: neither the first nor the last, and of those
/// which the host left alone. `stolen` is what it took in each of our seconds and the next one.
fn quiet_seconds(window: usize, stolen: &[f64]) -> Vec<usize> {
    let is_quiet = |second: &usize| {
        stolen
            .get(*second)
            .is_some_and(|stolen| *stolen <= STOLEN_MAX)
    };
    inner_seconds(window).filter(is_quiet).collect()
}

/// The seconds of a window but the first and the last.
fn inner_seconds(window: usize) -> Range<usize> {
    let begin = LEAD_S + window * WINDOW_S;
    begin + 1..begin + WINDOW_S - 1
}

/// The median of these seconds.
fn p99_us(run: &RunFile, what: &str, seconds: &[usize]) -> Result<f64> {
    let p99s = seconds
        .iter()
        .map(|second| run.number(&format!("/intervals/{second}/{what}/p99_us")));
    Ok(median(&mut p99s.collect::<Result<Vec<_>>>()?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_comes_first_and_second_in_turns() {
        let attacked: Vec<bool> = (0..6).map(is_attacked).collect();
        assert_eq!(attacked, [true, false, false, true, true, false]);
    }

    #[test]
    fn the_median_second_stands_for_the_window() {
        let interval = |p99_us: u32| format!("{{\"service\": {{\"p99_us\": {p99_us}}}}}");
        // Two of the lead, then the five of the first window, whose edges are left out.
        let intervals = [900, 900, 900, 70, 300, 80, 900].map(interval).join(",");
        let run = RunFile::parse(&format!("{{\"intervals\": [{intervals}]}}")).unwrap();
        let quiet = quiet_seconds(0, &[0.0; 7]);
        assert_eq!(quiet, [3, 4, 5]);
        assert_eq!(p99_us(&run, "service", &quiet).unwrap(), 80.0);
        assert!(p99_us(&run, "service", &quiet_seconds(1, &[0.0; 12])).is_err());
    }

    #[test]
    fn what_the_host_disturbed_does_not_count() {
        let mut stolen = [0.0; 7];
        stolen[4] = 2.0 * STOLEN_MAX;
        assert_eq!(quiet_seconds(0, &stolen), [3, 5]);
        assert!(quiet_seconds(0, &[1.0; 7]).is_empty());
    }
}
