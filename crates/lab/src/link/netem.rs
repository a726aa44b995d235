//! The kernel's own delay: netem on a veth pair between the two namespaces, set up with `ip` and
//! `tc`. The commands and what `tc` prints are plain values here, so that they are tested on
//! kernels without netem too.

use std::io;
use std::process::Command;

use super::namespace::Namespace;
use super::stats::Reading;
use super::{CLIENT_ADDRESS, LinkSpec, SERVER_ADDRESS};

/// Makes the veth pair and delays both directions.
pub(crate) fn set_up(spec: &LinkSpec, client: &Namespace, server: &Namespace) -> io::Result<()> {
    let pair = format!("link add {CLIENT_DEVICE} type veth peer name {SERVER_DEVICE} netns");
    let mut pair = words(&format!("ip {pair}"));
    pair.push(server.path());
    client.run(|| execute(&pair))??;
    let ends = [
        (client, CLIENT_DEVICE, CLIENT_ADDRESS),
        (server, SERVER_DEVICE, SERVER_ADDRESS),
    ];
    for (namespace, device, address) in ends {
        let commands = [
            words(&format!("ip addr add {address}/30 dev {device}")),
            words(&format!("ip link set {device} up")),
            queue_command(spec, device),
        ];
        namespace.run(|| commands.iter().try_for_each(|command| execute(command)))??;
    }
    Ok(())
}

/// What netem counted for the direction that leaves through this namespace's device, of whose
/// packets it was to drop the share `loss`.
pub(crate) fn reading(namespace: &Namespace, device: &str, loss: f64) -> io::Result<Reading> {
    let command = words(&format!("tc -s qdisc show dev {device}"));
    let output = namespace.run(|| Command::new(&command[0]).args(&command[1..]).output())??;
    parse_counters(&String::from_utf8_lossy(&output.stdout))
        .map(|counted| told_apart(counted, loss))
        .ok_or_else(|| io::Error::other("tc -s qdisc show printed no counters"))
}

/// The most packets that netem holds for `spec`: it bounds packets, not bytes.
pub(crate) fn limit_packets(spec: &LinkSpec) -> usize {
    (spec.queue_bytes / PACKET_BYTES_TYPICAL).max(1000)
}

/// The client's end of the veth pair.
pub(crate) const CLIENT_DEVICE: &str = "mw0";
/// The server's end.
pub(crate) const SERVER_DEVICE: &str = "mw1";

fn queue_command(spec: &LinkSpec, device: &str) -> Vec<String> {
    // netem's jitter goes both ways around its delay; ours only adds, so that the minimum is the
    // delay that was asked for.
    let half_jitter_us = spec.jitter.as_micros() / 2;
    let delay_us = spec.delay.as_micros() + half_jitter_us;
    let limit_packets = limit_packets(spec);
    let mut command = format!("tc qdisc add dev {device} root netem delay {delay_us}us");
    if half_jitter_us > 0 {
        command += &format!(" {half_jitter_us}us");
    }
    if spec.loss > 0.0 {
        command += &format!(" loss {}%", spec.loss * 100.0);
    }
    if let Some(rate) = spec.rate_bytes_per_s {
        command += &format!(" rate {}bit", u128::from(rate) * 8);
    }
    words(&format!("{command} limit {limit_packets}"))
}

/// netem bounds packets, not bytes; a stream of 1 KiB messages makes packets of about this size.
const PACKET_BYTES_TYPICAL: usize = 1024;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn execute(command: &[String]) -> io::Result<()> {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", command[0])))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = stderr
        .lines()
        .next()
        .unwrap_or("no message")
        .trim()
        .to_owned();
    Err(io::Error::other(format!("{}: {said}", command.join(" "))))
}

/// Reads `Sent 1234 bytes 12 pkt (dropped 3, overlimits 0 requeues 0)`.
fn parse_counters(text: &str) -> Option<Reading> {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("Sent "))?;
    let numbers: Vec<u64> = line
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [bytes, packets, dropped_queue, ..] = numbers[..] else {
        return None;
    };
    Some(Reading {
        packets,
        bytes,
        dropped_queue,
        ..Reading::default()
    })
}

/// netem has one counter for the losses that were asked for and for its full queue. Losses are
/// what chance can explain; what is beyond that was dropped by the queue.
fn told_apart(counted: Reading, loss: f64) -> Reading {
    let dropped = counted.dropped_queue;
    let offered = (counted.packets + dropped) as f64;
    let deviation = (offered * loss * (1.0 - loss)).sqrt();
    let explained = (offered * loss + DEVIATIONS_MAX * deviation).ceil() as u64;
    let dropped_loss = if loss > 0.0 {
        dropped.min(explained)
    } else {
        0
    };
    Reading {
        dropped_loss,
        dropped_queue: dropped - dropped_loss,
        ..counted
    }
}

/// Chance exceeds this many standard deviations once in three million readings.
const DEVIATIONS_MAX: f64 = 5.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_queue_command_states_delay_and_limit() {
        let spec = LinkSpec {
            delay: Duration::from_millis(20),
            ..LinkSpec::default()
        };
        assert_eq!(
            queue_command(&spec, "mw0").join(" "),
            "tc qdisc add dev mw0 root netem delay 20000us limit 65536"
        );
    }

    #[test]
    fn jitter_is_centred_so_that_the_delay_stays_the_minimum() {
        let spec = LinkSpec {
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(4),
            loss: 0.01,
            rate_bytes_per_s: Some(1_000_000),
            queue_bytes: 0,
            ..LinkSpec::default()
        };
        assert_eq!(
            queue_command(&spec, "mw1").join(" "),
            "tc qdisc add dev mw1 root netem delay 22000us 2000us loss 1% rate 8000000bit \
             limit 1000"
        );
    }

    #[test]
    fn counters_are_read_from_what_tc_prints() {
        let text = "qdisc netem 8001: root refcnt 2 limit 65536 delay 20ms\n Sent 123456 bytes 789 \
                    pkt (dropped 3, overlimits 0 requeues 0)\n backlog 0b 0p requeues 0\n";
        let counters = parse_counters(text).unwrap();
        assert_eq!(
            (counters.bytes, counters.packets, counters.dropped_queue),
            (123_456, 789, 3)
        );
        assert!(parse_counters("qdisc noqueue 0: root refcnt 2\n").is_none());
    }

    #[test]
    fn losses_that_were_asked_for_are_not_drops_of_the_queue() {
        let counted = |dropped_queue| Reading {
            packets: 10_000 - dropped_queue,
            dropped_queue,
            ..Reading::default()
        };
        let split = |dropped, loss| {
            let reading = told_apart(counted(dropped), loss);
            (reading.dropped_loss, reading.dropped_queue)
        };
        assert_eq!(split(110, 0.01), (110, 0));
        assert_eq!(split(7, 0.0), (0, 7));
        let (loss, queue) = split(1100, 0.01);
        assert!(
            (100..=160).contains(&loss) && queue == 1100 - loss,
            "{loss} {queue}"
        );
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        let error = execute(&words("sh -c false")).unwrap_err();
        assert!(error.to_string().contains("no message"), "{error}");
        let error = execute(&words("no-such-program-here")).unwrap_err();
        assert!(
            error.to_string().starts_with("no-such-program-here"),
            "{error}"
        );
    }
}
