//! What a battle asks of the kernel, and whether it has it.

use moonwire_load::{Pacing, Settings, Workload};
use moonwire_report::Environment;

use super::host::Host;
use super::path::Path;
use super::{BattleError, BattleEvent, BattleObserver, BattleSpec};
use crate::contestant::Kind;
use crate::kernel::{Findings, Needs};

/// Whether it can be fought; what would make its figures those of a setting.
pub(super) fn check(
    spec: &BattleSpec,
    path: &Path,
    host: &Host,
) -> Result<Vec<String>, BattleError> {
    let needs = needs(spec);
    let kernel = host.kernel(path);
    let Findings { errors, warnings } = match host {
        Host::Here => needs.check(&kernel),
        Host::There(there) => {
            let (ours, theirs) = shared_out(needs, host.is_on_loopback());
            let mut findings = theirs.check(&kernel);
            let sentences = findings.errors.iter_mut().chain(&mut findings.warnings);
            let place = there.agent.place();
            sentences.for_each(|it| *it = format!("at the agent {place}: {it}"));
            let own = ours.check(&Host::Here.kernel(path));
            findings.errors.extend(own.errors);
            findings.warnings.extend(own.warnings);
            findings
        }
    };
    match errors.is_empty() {
        true => Ok(warnings),
        false => Err(BattleError::Machine(errors.join("; "))),
    }
}

/// What the clients' host needs, and what that of the contestants does: there proxies and servers
/// meet on the loopback.
fn shared_out(needs: Needs, is_on_loopback: bool) -> (Needs, Needs) {
    let ours = Needs {
        handshakes: 0,
        backends: 0,
        is_over_link: !is_on_loopback,
        ..needs.clone()
    };
    let theirs = Needs {
        is_over_link: false,
        ..needs
    };
    (ours, theirs)
}

/// Tells who watches and who reads the result.
pub(super) fn tell(
    warnings: &[String],
    environment: &mut Environment,
    observer: &mut BattleObserver<'_>,
) {
    for sentence in warnings {
        observer(&BattleEvent::Warning { sentence });
    }
    if !warnings.is_empty() {
        let note = ("kernel_settings".to_owned(), warnings.join("; "));
        environment.notes.extend([note]);
    }
}

/// The most that any of the loads asks for.
fn needs(spec: &BattleSpec) -> Needs {
    let is_proxied = spec
        .contestants
        .iter()
        .any(|it| it.kind() == Kind::Proxy && it.has_process());
    let mut needs = Needs {
        backends: match is_proxied {
            true => spec.scenario.backends as u64,
            false => 0,
        },
        is_over_link: !spec.scenario.link.is_plain(),
        ..Needs::default()
    };
    for load in spec.scenario.loads() {
        let settings = &load.settings;
        let in_all = u64::from(settings.connections);
        let at_once = in_all.min(settings.open_max.unwrap_or(u32::MAX).into());
        let handshakes = at_once.min(settings.connect_concurrency.into());
        needs.connections = needs.connections.max(at_once);
        needs.connections_in_all = needs.connections_in_all.max(in_all);
        needs.handshakes = needs.handshakes.max(handshakes);
        let bytes = at_once.saturating_mul(bytes_in_flight(settings));
        needs.bytes_in_flight = needs.bytes_in_flight.max(bytes);
    }
    needs
}

/// Of one connection; nothing where no bound is known.
fn bytes_in_flight(settings: &Settings) -> u64 {
    let messages = match settings.pacing {
        Pacing::Closed { in_flight } => in_flight,
        Pacing::Open { in_flight, .. } | Pacing::Stages { in_flight, .. } => in_flight.unwrap_or(0),
        Pacing::Batches {
            batch, in_flight, ..
        } => batch.min(in_flight.unwrap_or(u32::MAX)),
        Pacing::Hold => 0,
    };
    let bytes = match settings.workload {
        Workload::Echo { size, .. }
        | Workload::Alternating { size }
        | Workload::Amplify { size, .. } => size as u64,
    };
    bytes.saturating_mul(messages.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_asked_for_what_is_its_own() {
        let needs = Needs {
            connections: 50_000,
            handshakes: 256,
            backends: 4,
            ..Needs::default()
        };
        let (ours, theirs) = shared_out(needs.clone(), false);
        assert!(ours.is_over_link && ours.backends == 0 && ours.handshakes == 0);
        assert_eq!(ours.connections, 50_000);
        assert!(!theirs.is_over_link && theirs.backends == 4 && theirs.handshakes == 256);
        assert!(!shared_out(needs, true).0.is_over_link);
    }
}
