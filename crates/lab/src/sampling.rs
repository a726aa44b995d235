//! What processes use while they are under load, read from outside at a fixed period.

mod processors;
mod record;

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use moonwire_report::Processor;
use procfs::process::Process;
use serde::{Deserialize, Serialize};

pub use self::processors::ProcessorTimes;
use self::processors::ProcessorWatch;
use self::record::Record;
use crate::cgroup::{CpuGroup, Throttling};
use crate::process::tree::{self, Member};
use crate::scheduling;

/// One look at one or several processes, summed up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// When. Moments mean something in their process only.
    #[serde(skip, default = "Instant::now")]
    pub at: Instant,
    /// CPU time of all its threads since it started, nanoseconds.
    pub cpu_ns: u64,
    /// Time for which its threads could have run and waited for a processor, those that are there,
    /// nanoseconds.
    #[serde(default)]
    pub waited_ns: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Context switches because a thread waited, all threads.
    pub voluntary_switches: u64,
    /// Context switches because something else was to run, all threads.
    pub involuntary_switches: u64,
    /// TCP segments sent again in its network namespace since that began.
    pub retransmitted_segments: u64,
    /// Connections that its namespace's full listen queues have turned away.
    pub listen_overflows: u64,
    /// Memory of all TCP sockets, bytes (the kernel keeps one account for all namespaces).
    pub tcp_memory_bytes: u64,
    /// Processor time of the machine that its host gave to others (steal), milliseconds.
    pub stolen_ms: u64,
    /// What a limit on its CPU did, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// What the processors of the machine did, looked at twice a second at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<ProcessorTimes>,
    /// CPU time that whoever looks had used at a look at the processors, nanoseconds.
    #[serde(default)]
    pub observer_cpu_ns: u64,
    /// What costs the process something to find out, looked at less often.
    pub rare: Option<RareSample>,
}

/// The part of a sample that holds locks of the process while it is read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RareSample {
    /// Proportional share of memory, bytes.
    pub pss_bytes: u64,
    /// Open file descriptors.
    pub descriptors: u64,
}

/// A sample with its time on the run's clock.
#[derive(Debug, Clone, Serialize)]
pub struct TimedSample<'a> {
    /// Seconds since the first message was due; negative during the handshakes.
    pub at_s: f64,
    /// What was seen.
    #[serde(flatten)]
    pub sample: &'a Sample,
}

/// The samples of one run, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Series(pub Vec<Sample>);

impl Series {
    /// The samples on a clock that is zero at `origin`.
    pub fn timed(&self, origin: Instant) -> Vec<TimedSample<'_>> {
        let timed = |sample| TimedSample {
            at_s: seconds_between(origin, sample),
            sample,
        };
        self.0.iter().map(timed).collect()
    }

    /// Leaves all of them in a file of this folder, which is made, on a clock that is zero at
    /// `origin`.
    pub(crate) fn write(&self, folder: &Path, file: &str, origin: Instant) {
        let text = serde_json::to_string(&self.timed(origin));
        let text = text.expect("it has no maps, and numbers only");
        let _ = fs::create_dir_all(folder);
        // A disk that takes nothing is told of by the Run file, which is written next.
        let _ = fs::write(folder.join(file), text);
    }

    /// Goes on with what was seen of the processes that took the place of these: what counts up
    /// since their start goes on from where it was.
    pub fn followed_by(mut self, later: Self) -> Self {
        let Some(last) = self.0.last().cloned() else {
            return later;
        };
        self.0.extend(later.0.into_iter().map(|sample| Sample {
            cpu_ns: last.cpu_ns + sample.cpu_ns,
            waited_ns: last.waited_ns + sample.waited_ns,
            voluntary_switches: last.voluntary_switches + sample.voluntary_switches,
            involuntary_switches: last.involuntary_switches + sample.involuntary_switches,
            ..sample
        }));
        self
    }

    /// CPU used in `[from, to)` as a share of one core, from the samples around it.
    pub fn cpu_share(&self, from: Instant, to: Instant) -> Option<f64> {
        let (from_ns, to_ns) = (self.cpu_ns_at(from)?, self.cpu_ns_at(to)?);
        let wall = to.checked_duration_since(from)?.as_secs_f64();
        (wall > 0.0).then(|| (to_ns - from_ns).max(0.0) / 1e9 / wall)
    }

    /// The least and the most CPU from one sample in `[from, to]` to the next, as shares of one
    /// core, and from both ends to the samples beside them: the share of the whole is between the
    /// two. What is too short to tell a share is a part of what is beside it.
    pub(crate) fn cpu_range(&self, from: Instant, to: Instant) -> Option<(f64, f64)> {
        let mut marks = vec![from];
        let within = self.0.iter().map(|sample| sample.at);
        for at in within.filter(|at| *at > from && *at < to) {
            if at - marks[marks.len() - 1] >= SHARE_OVER_MIN {
                marks.push(at);
            }
        }
        if marks.len() > 1 && to - marks[marks.len() - 1] < SHARE_OVER_MIN {
            marks.pop();
        }
        marks.push(to);
        let shares = marks
            .windows(2)
            .map(|ends| self.cpu_share(ends[0], ends[1]));
        let shares: Vec<f64> = shares.collect::<Option<_>>()?;
        let least = shares.iter().copied().min_by(f64::total_cmp)?;
        let most = shares.iter().copied().max_by(f64::total_cmp)?;
        Some((least, most))
    }

    /// CPU time at a moment, interpolated between the samples around it.
    pub fn cpu_ns_at(&self, at: Instant) -> Option<f64> {
        self.counted_at(at, |sample| Some(sample.cpu_ns as f64))
    }

    /// Time for which a limit kept processors from it until a moment, nanoseconds, interpolated
    /// likewise.
    pub fn throttled_ns_at(&self, at: Instant) -> Option<f64> {
        self.counted_at(at, |sample| Some(sample.throttling?.throttled_ns as f64))
    }

    /// Something that counts up, at a moment.
    fn counted_at(&self, at: Instant, count: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let after = self.0.partition_point(|sample| sample.at <= at);
        let before = self.0.get(after.checked_sub(1)?)?;
        let Some(next) = self.0.get(after) else {
            // The last sample stands for the moments right after it.
            return count(before);
        };
        let part = (at - before.at).as_secs_f64() / (next.at - before.at).as_secs_f64();
        let (from, to) = (count(before)?, count(next)?);
        Some(from + part * (to - from))
    }

    /// By how much something that counts up has risen in `[from, to)`. The parts of a whole are
    /// rounded so that they add up to it.
    pub(crate) fn rise(
        &self,
        from: Instant,
        to: Instant,
        count: fn(&Sample) -> u64,
    ) -> Option<u64> {
        let at = |moment| self.counted_at(moment, |sample| Some(count(sample) as f64));
        let (before, after) = (at(from)?.round(), at(to)?.round());
        Some((after - before).max(0.0) as u64)
    }

    /// The last close look in `[from, to)`.
    pub(crate) fn rare_within(&self, from: Instant, to: Instant) -> Option<RareSample> {
        let within = self.0.iter().rev().skip_while(|sample| sample.at >= to);
        within
            .take_while(|sample| sample.at >= from)
            .find_map(|sample| sample.rare)
    }

    /// The same in `[from, to)`, milliseconds.
    pub fn throttled_ms(&self, from: Instant, to: Instant) -> Option<f64> {
        let passed_ns = self.throttled_ns_at(to)? - self.throttled_ns_at(from)?;
        Some(passed_ns.max(0.0) / 1e6)
    }

    /// What the processors of the machine did between the looks at them that are nearest to both
    /// moments.
    pub fn processors(&self, from: Instant, to: Instant) -> Vec<Processor> {
        let Some((first, last)) = self.processor_looks(from, to) else {
            return Vec::new();
        };
        let before = first.processors.iter();
        let both = before.filter_map(|before| {
            let mut later = last.processors.iter();
            before.until(later.find(|after| after.number == before.number)?)
        });
        both.collect()
    }

    /// The looks at the processors that are nearest to both moments.
    pub(crate) fn processor_looks(&self, from: Instant, to: Instant) -> Option<(&Sample, &Sample)> {
        let looks = || self.0.iter().filter(|sample| !sample.processors.is_empty());
        let distance = |one: Instant, other: Instant| match one > other {
            true => one - other,
            false => other - one,
        };
        let nearest = |at| looks().min_by_key(|sample| distance(sample.at, at));
        Some((nearest(from)?, nearest(to)?))
    }

    /// The most that was seen of what comes and goes, by its name in a result.
    pub fn peaks(&self) -> impl Iterator<Item = (String, f64)> {
        let rare = |of: fn(&RareSample) -> u64| {
            let looks = self.0.iter().filter_map(|sample| sample.rare.as_ref());
            looks.map(of).max()
        };
        let tcp_memory = self.0.iter().map(|sample| sample.tcp_memory_bytes).max();
        let peaks = [
            ("pss_peak_bytes", rare(|it| it.pss_bytes)),
            ("descriptors_peak", rare(|it| it.descriptors)),
            ("tcp_memory_peak_bytes", tcp_memory),
        ];
        let known = peaks.into_iter();
        known.filter_map(|(name, peak)| Some((name.to_owned(), peak? as f64)))
    }

    /// The last sample not after `at`.
    pub fn last_until(&self, at: Instant) -> Option<&Sample> {
        self.0[..self.0.partition_point(|sample| sample.at <= at)].last()
    }

    /// The largest resident memory seen.
    pub fn rss_peak_bytes(&self) -> Option<u64> {
        self.0.iter().map(|sample| sample.rss_bytes).max()
    }
}

fn seconds_between(origin: Instant, sample: &Sample) -> f64 {
    let after = sample.at.saturating_duration_since(origin).as_secs_f64();
    let before = origin.saturating_duration_since(sample.at).as_secs_f64();
    after - before
}

/// What processes use at the moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Whose they are.
    pub name: String,
    /// Processors in use, 1.0 is one, over about the last second.
    pub cpu_cores: f64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

/// The newest samples of a sampler that is at work.
#[derive(Debug, Clone, Default)]
pub(crate) struct Newest(Arc<Mutex<VecDeque<Sample>>>);

impl Newest {
    fn note(&self, sample: &Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while samples
            .front()
            .is_some_and(|first| sample.at.duration_since(first.at) > NEWEST)
        {
            samples.pop_front();
        }
        samples.push_back(sample.clone());
    }

    /// What they use now; `None` before the second look.
    pub(crate) fn usage(&self, name: &str) -> Option<Usage> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (samples.front()?, samples.back()?);
        let passed_s = last.at.duration_since(first.at).as_secs_f64();
        (passed_s > 0.0).then(|| Usage {
            name: name.to_owned(),
            cpu_cores: last.cpu_ns.saturating_sub(first.cpu_ns) as f64 / 1e9 / passed_s,
            rss_bytes: last.rss_bytes,
        })
    }
}

/// A thread that looks at processes until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    newest: Newest,
    thread: JoinHandle<Series>,
}

impl Sampler {
    /// Starts looking at the processes and their children every `period` (at least 10 ms), and half
    /// as often whenever there are too many samples. The first look is taken before this returns,
    /// so that an idle process is on record.
    pub fn start(roots: &[i32], period: Duration) -> Self {
        Self::start_in(roots, None, period)
    }

    /// The same of processes whose CPU this group rations.
    pub(crate) fn start_in(roots: &[i32], group: Option<Arc<CpuGroup>>, period: Duration) -> Self {
        let period = period.max(PERIOD_MIN);
        let (stop, stopped) = mpsc::channel();
        let is_root = |member: &Member| roots.contains(&member.pid);
        let members = tree::members(roots);
        let roots: Vec<Member> = members.iter().copied().filter(is_root).collect();
        let mut watched = Watched::new(members);
        let mut first = watched.look(group.as_deref(), true);
        let mut processors = ProcessorWatch::default();
        first.iter_mut().for_each(|it| processors.add_to(it, true));
        let newest = Newest::default();
        let told = newest.clone();
        let thread = std::thread::spawn(move || {
            scheduling::step_back();
            let mut record = Record::of(first, SAMPLES_MAX);
            let mut period = period;
            let mut next = Instant::now() + period;
            let mut looks = 0_u64;
            loop {
                let pause = next.saturating_duration_since(Instant::now());
                let last = !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout));
                looks += 1;
                let rare = last || looks.is_multiple_of(RARE_EVERY);
                if rare || watched.has_lost {
                    watched.set(tree::members_of(&roots));
                }
                let mut sample = watched.look(group.as_deref(), rare);
                if let Some(sample) = &mut sample {
                    told.note(sample);
                    processors.add_to(sample, last);
                }
                let Some(sample) = sample else {
                    return record.end();
                };
                if record.add(sample) {
                    period *= 2;
                }
                if last {
                    return record.end();
                }
                // A late look does not bring the next one forward.
                next = (next + period).max(Instant::now());
            }
        });
        Self {
            stop,
            newest,
            thread,
        }
    }

    /// What those that wait may be told meanwhile.
    pub(crate) fn newest(&self) -> Newest {
        self.newest.clone()
    }

    /// Takes a last look and returns them all.
    pub fn stop(self) -> Series {
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// Of the samples that tell what is used at the moment.
const NEWEST: Duration = Duration::from_secs(1);
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// Ticks of processor time are up to 10 ms long: of less than a few of them no share can be told.
const SHARE_OVER_MIN: Duration = Duration::from_millis(50);
/// Every how many looks the rare part is read: it walks page tables and descriptor tables.
const RARE_EVERY: u64 = 20;
/// Almost three hours at ten samples a second; of a day every tenth of them.
const SAMPLES_MAX: usize = 100_000;

/// The processes that are looked at.
#[derive(Debug, Default)]
struct Watched {
    /// With the CPU time that they had used when they were last looked at.
    members: Vec<(Member, u64)>,
    /// CPU time of those that have ended.
    ended_ns: u64,
    /// Whether some have ended since the members were set: others may have taken their place.
    has_lost: bool,
}

impl Watched {
    fn new(members: Vec<Member>) -> Self {
        let members = members.into_iter().map(|member| (member, 0)).collect();
        Self {
            members,
            ..Self::default()
        }
    }

    /// Looks at others from now on. What those have used that are not among them stays counted.
    fn set(&mut self, members: Vec<Member>) {
        let before = std::mem::take(&mut self.members);
        for (member, cpu_ns) in &before {
            if !members.contains(member) {
                self.ended_ns += cpu_ns;
            }
        }
        let known = |member: &Member| before.iter().find(|(it, _)| it == member);
        let used = |member: Member| (member, known(&member).map_or(0, |(_, cpu_ns)| *cpu_ns));
        self.members = members.into_iter().map(used).collect();
        self.has_lost = false;
    }

    /// Looks at all of them; `None` once they have ended.
    fn look(&mut self, group: Option<&CpuGroup>, rare: bool) -> Option<Sample> {
        let mut looks = Vec::with_capacity(self.members.len());
        self.members.retain_mut(|(member, cpu_ns)| {
            let Some(sample) = look_at(member.pid, rare) else {
                self.ended_ns += *cpu_ns;
                self.has_lost = true;
                return false;
            };
            *cpu_ns = sample.cpu_ns;
            looks.push(sample);
            true
        });
        let sum = sum(looks, group)?;
        Some(Sample {
            cpu_ns: sum.cpu_ns + self.ended_ns,
            ..sum
        })
    }
}

/// What several processes use together; `None` of none.
fn sum(looks: Vec<Sample>, group: Option<&CpuGroup>) -> Option<Sample> {
    let looks = looks.into_iter();
    // What belongs to the network namespace is that of the first: they share one.
    let sum = looks.reduce(|sum, one| Sample {
        cpu_ns: sum.cpu_ns + one.cpu_ns,
        waited_ns: sum.waited_ns + one.waited_ns,
        rss_bytes: sum.rss_bytes + one.rss_bytes,
        threads: sum.threads + one.threads,
        voluntary_switches: sum.voluntary_switches + one.voluntary_switches,
        involuntary_switches: sum.involuntary_switches + one.involuntary_switches,
        rare: match (sum.rare, one.rare) {
            (Some(sum), Some(one)) => Some(RareSample {
                pss_bytes: sum.pss_bytes + one.pss_bytes,
                descriptors: sum.descriptors + one.descriptors,
            }),
            (one, other) => one.or(other),
        },
        ..sum
    });
    let throttling = group.and_then(CpuGroup::throttling);
    let stolen_ms = stolen_ms();
    sum.map(|sum| Sample {
        throttling,
        stolen_ms,
        ..sum
    })
}

/// Looks at one process; `None` once it has ended.
fn look_at(pid: i32, rare: bool) -> Option<Sample> {
    let process = Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    let at = Instant::now();
    let cpu_ns = scheduling::process_cpu(pid).as_nanos() as u64;
    if stat.state == 'Z' {
        return None;
    }
    let (voluntary_switches, involuntary_switches) = switches(&process);
    let tables = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
    let counter = |table: &str, row: &str, column: &str| {
        tables(table)
            .ok()
            .and_then(|text| titled(&text, row, column))
            .unwrap_or(0)
    };
    let tcp_pages = tables("sockstat")
        .ok()
        .and_then(|text| labelled(&text, "TCP", "mem"));
    Some(Sample {
        at,
        cpu_ns,
        waited_ns: waited_ns(pid),
        rss_bytes: stat.rss * procfs::page_size(),
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        voluntary_switches,
        involuntary_switches,
        retransmitted_segments: counter("snmp", "Tcp", "RetransSegs"),
        listen_overflows: counter("netstat", "TcpExt", "ListenOverflows"),
        tcp_memory_bytes: tcp_pages.unwrap_or(0) * procfs::page_size(),
        stolen_ms: 0,
        throttling: None,
        processors: Vec::new(),
        observer_cpu_ns: 0,
        rare: rare.then(|| look_closely(&process)).flatten(),
    })
}

fn look_closely(process: &Process) -> Option<RareSample> {
    let rollup = process.smaps_rollup().ok()?;
    let pss_bytes = rollup
        .memory_map_rollup
        .iter()
        .find_map(|map| map.extension.map.get("Pss"));
    Some(RareSample {
        pss_bytes: pss_bytes.copied().unwrap_or(0),
        descriptors: process.fd_count().ok()? as u64,
    })
}

/// Steal of all processors since the machine started; 0 where the host tells none.
fn stolen_ms() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let ticks: Option<u64> = stat
        .split_whitespace()
        .nth(8)
        .and_then(|it| it.parse().ok());
    ticks.unwrap_or(0) * 1000 / procfs::ticks_per_second().max(1)
}

/// Context switches of all threads: `/proc/PID/status` alone has only the first thread's.
fn switches(process: &Process) -> (u64, u64) {
    let Ok(tasks) = process.tasks() else {
        return (0, 0);
    };
    tasks
        .flatten()
        .filter_map(|task| task.status().ok())
        .fold((0, 0), |sum, status| {
            (
                sum.0 + status.voluntary_ctxt_switches.unwrap_or(0),
                sum.1 + status.nonvoluntary_ctxt_switches.unwrap_or(0),
            )
        })
}

/// For how long all its threads waited for a processor; 0 where the kernel does not keep it.
fn waited_ns(pid: i32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let waited = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        // Time that it ran, time that it waited, how often it ran.
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waited.sum()
}

/// Reads a table like `/proc/net/snmp`: per row one line of titles and one of values.
fn titled(text: &str, row: &str, column: &str) -> Option<u64> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(row)?.strip_prefix(':'));
    let (titles, values) = (lines.next()?, lines.next()?);
    let at = titles
        .split_whitespace()
        .position(|title| title == column)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// Reads a table like `/proc/net/sockstat`: per row one line of names, each before its value.
fn labelled(text: &str, row: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(row)?.strip_prefix(':'))?;
    line.split_whitespace()
        .skip_while(|word| *word != name)
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
pub(crate) mod tests;
