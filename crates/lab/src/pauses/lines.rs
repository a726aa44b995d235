//! How runtimes tell the pauses of their garbage collectors: what a line says.

use std::time::Duration;

use serde::Deserialize;

/// Whose lines they are.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PauseLines {
    /// `node --trace-gc`, and whatever else is on V8.
    Node,
    /// `GODEBUG=gctrace=1`.
    Go,
    /// `gc pause 1.25 ms`, which a program prints by itself right after each pause.
    Pause,
}

/// How long before the line a pause ended, and how long it was.
pub(super) type Told = (Duration, Duration);

impl PauseLines {
    /// The pauses that a line tells of; `None` where it tells of none.
    pub(super) fn read(self, line: &str) -> Option<Vec<Told>> {
        match self {
            Self::Node => node(line),
            Self::Go => go(line),
            Self::Pause => pause(line),
        }
    }
}

/// `[PID:ISOLATE] 274 ms: Mark-Compact 42.5 (64.3) -> 33.6 (66.6) MB, 15.09 / 0.00 ms  (...`: the
/// pause is the number before the stroke. Steps of marking that went before are pauses, too, but
/// have neither a number nor a moment of their own.
fn node(line: &str) -> Option<Vec<Told>> {
    let (_, after_isolate) = line.strip_prefix('[')?.split_once("] ")?;
    let (_, collection) = after_isolate.split_once(" ms: ")?;
    let (_, times) = collection.split_once(" MB, ")?;
    let (pause, _) = times.split_once(" / ")?;
    let length = milliseconds(pause.rsplit(' ').next()?)?;
    Some(vec![(Duration::ZERO, length)])
}

/// `gc 1 @1.172s 0%: 0.008+1.2+0.010 ms clock, ...`: all stand still in the first and in the last
/// of these times; the line comes after the last.
fn go(line: &str) -> Option<Vec<Told>> {
    let (_, times) = line.strip_prefix("gc ")?.split_once("%: ")?;
    let (clock, _) = times.split_once(" ms clock")?;
    let times: Option<Vec<Duration>> = clock.split('+').map(milliseconds).collect();
    let [first, together, last] = times?[..] else {
        return None;
    };
    Some(vec![(together + last, first), (Duration::ZERO, last)])
}

fn pause(line: &str) -> Option<Vec<Told>> {
    let length = line.strip_prefix("gc pause ")?.strip_suffix(" ms")?;
    Some(vec![(Duration::ZERO, milliseconds(length)?)])
}

/// A number of a program that may say anything.
fn milliseconds(text: &str) -> Option<Duration> {
    let ms: f64 = text.parse().ok()?;
    let is_possible = (0.0..=PAUSE_MS_MAX).contains(&ms);
    is_possible.then(|| Duration::from_secs_f64(ms / 1e3))
}

/// An hour.
const PAUSE_MS_MAX: f64 = 3_600_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn told_us(lines: PauseLines, line: &str) -> Option<Vec<[u128; 2]>> {
        let told = lines.read(line)?.into_iter();
        let micros = |(before, length): Told| [before.as_micros(), length.as_micros()];
        Some(told.map(micros).collect())
    }

    #[test]
    fn lines_of_node_have_the_pause_before_the_stroke() {
        for (line, us) in [
            (
                "[20396:0x35803c00]       86 ms: Scavenge 3.9 (4.0) -> 3.5 (5.0) MB, 5.29 / \
                 0.00 ms  (average mu = 1.000, current mu = 1.000) allocation failure; ",
                5290,
            ),
            (
                "[20396:0x35803c00]      274 ms: Mark-Compact 42.5 (64.3) -> 33.6 (66.6) MB, \
                 15.09 / 0.00 ms  (+ 27.0 ms in 124 steps since start of marking, biggest step \
                 2.7 ms, walltime since start of marking 60 ms) (average mu = 1.000, current mu = \
                 1.000) finalize incremental marking via task; GC in old space requested",
                15_090,
            ),
            // Newer ones tell what they keep for later, too.
            (
                "[1:0x7f2c4000:0]       31 ms: Scavenge 4.2 (5.0) -> 3.9 (6.0) MB, pooled: 0 MB, \
                 0.52 / 0.00 ms  (average mu = 1.000, current mu = 1.000) task; ",
                520,
            ),
        ] {
            assert_eq!(
                told_us(PauseLines::Node, line),
                Some(vec![[0, us]]),
                "{line}"
            );
        }
        for line in [
            "listening on port 5083, 1 worker",
            "[notice] 3 ms: it went from 1 to 2 MB, or so",
            "[1:0x1] 3 ms: Scavenge 4.2 (5.0) -> 3.9 (6.0) MB, NaN / 0.00 ms",
            "[1:0x1] 3 ms: Scavenge 4.2 (5.0) -> 3.9 (6.0) MB, -1 / 0.00 ms",
            "",
        ] {
            assert_eq!(told_us(PauseLines::Node, line), None, "{line}");
        }
    }

    #[test]
    fn lines_of_go_have_two_pauses_with_what_ran_beside_between_them() {
        let line = "gc 2 @2.559s 0%: 0.015+1.1+0.002 ms clock, 0.015+0/0.33/0.67+0.002 ms cpu, \
                    5->5->2 MB, 5 MB goal, 0 MB stacks, 0 MB globals, 1 P";
        let expected = vec![[1102, 15], [0, 2]];
        assert_eq!(told_us(PauseLines::Go, line), Some(expected));
        for line in [
            "gc 2 @2.559s 0%: 0.015+1.1 ms clock, 0 ms cpu",
            "gc 2 @2.559s 0%: 0.015+1.1+1e300 ms clock, 0 ms cpu",
            "gc pause 2 ms",
        ] {
            assert_eq!(told_us(PauseLines::Go, line), None, "{line}");
        }
    }

    #[test]
    fn a_program_of_ones_own_says_it_in_words() {
        let told = |line| told_us(PauseLines::Pause, line);
        assert_eq!(told("gc pause 0.180 ms"), Some(vec![[0, 180]]));
        assert_eq!(told("gc pause 0.180 s"), None);
        assert_eq!(told("gc pause inf ms"), None);
    }
}
