//! Local addresses to connect from, when one is too few.
//!
//! A connection is known by its two addresses and ports, so one source address has as many
//! connections to one destination as the kernel has ephemeral ports.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Which source each connection uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    /// In turn; empty leaves the choice to the routing table.
    addresses: Vec<IpAddr>,
}

impl Sources {
    /// Chooses the sources for `per_target` connections to each of `targets`, with `ports`
    /// ephemeral ports per pair of addresses. The error is one sentence.
    pub(crate) fn choose(
        targets: &[SocketAddr],
        per_target: u32,
        ports: u32,
        given: &[IpAddr],
    ) -> Result<Self, String> {
        let mut connections: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        for &target in targets {
            *connections.entry(target).or_insert(0) += u64::from(per_target);
        }
        let usable = u64::from(ports) * PORT_SHARE_PERCENT / 100;
        let needed = |count: u64| count.div_ceil(usable.max(1));
        let (&target, &most) = connections
            .iter()
            .max_by_key(|(_, count)| **count)
            .ok_or("there is no target")?;
        if let Some(other) = given
            .iter()
            .find(|ip| targets.iter().any(|t| t.is_ipv4() != ip.is_ipv4()))
        {
            return Err(format!(
                "the source address {other} is of another family than a target"
            ));
        }
        if !given.is_empty() {
            if (given.len() as u64) < needed(most) {
                return Err(too_few(most, target, needed(most), usable));
            }
            return Ok(Self {
                addresses: given.to_vec(),
            });
        }
        let all_loopback = targets
            .iter()
            .all(|target| matches!(target.ip(), IpAddr::V4(address) if address.is_loopback()));
        let quick = (u64::from(ports) * QUICK_SHARE_PERCENT / 100).max(1);
        if most <= quick || !all_loopback && needed(most) <= 1 {
            return Ok(Self {
                addresses: Vec::new(),
            });
        }
        let count = most.div_ceil(quick);
        if !all_loopback || count > LOOPBACK_MAX {
            return Err(too_few(most, target, needed(most), usable));
        }
        // Any address of 127.0.0.0/8 works without being added to an interface.
        let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
        let count = u32::try_from(count).expect("checked against LOOPBACK_MAX");
        let addresses = (first..first + count)
            .map(|n| Ipv4Addr::from(n).into())
            .collect();
        Ok(Self { addresses })
    }

    /// The source of the `number`th connection to a target.
    pub(crate) fn of(&self, number: u32) -> Option<IpAddr> {
        let count = u32::try_from(self.addresses.len())
            .ok()
            .filter(|&count| count > 0)?;
        self.addresses.get((number % count) as usize).copied()
    }

    /// Addresses used, 1 when the routing table chooses.
    pub(crate) fn count(&self) -> u64 {
        self.addresses.len().max(1) as u64
    }
}

fn too_few(connections: u64, target: SocketAddr, needed: u64, usable: u64) -> String {
    format!(
        "{connections} connections to {target} need {needed} source addresses with {usable} ports \
         each: give them with `--source-ip ADDR,ADDR,...`, or widen the range with \
         `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`"
    )
}

/// Share of the port range that is counted on: some are taken, or wait for old segments.
const PORT_SHARE_PERCENT: u64 = 90;
/// Share of it that connect(2) finds quickly: it looks at every second port first, and once those
/// are taken it looks at all of them, for milliseconds, each time.
const QUICK_SHARE_PERCENT: u64 = 45;
/// Loopback addresses that are spread over: far more than one machine has descriptors for.
const LOOPBACK_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(targets: &[&str], per_target: u32, given: &[&str]) -> Result<Sources, String> {
        let targets: Vec<SocketAddr> = targets.iter().map(|t| t.parse().unwrap()).collect();
        let given: Vec<IpAddr> = given.iter().map(|ip| ip.parse().unwrap()).collect();
        Sources::choose(&targets, per_target, 10_000, &given)
    }

    #[test]
    fn one_address_is_left_to_the_kernel() {
        let sources = choose(&["127.0.0.1:80", "127.0.0.1:81"], 4500, &[]).unwrap();
        assert_eq!((sources.of(3), sources.count()), (None, 1));
        // Elsewhere there is but one, however long its ports take to be found.
        assert_eq!(choose(&["10.1.1.1:80"], 9000, &[]).unwrap().count(), 1);
    }

    #[test]
    fn loopback_spreads_when_the_ports_are_too_few() {
        let sources = choose(&["127.0.0.1:80"], 9_001, &[]).unwrap();
        assert_eq!(sources.count(), 3);
        assert_eq!(sources.of(0), Some("127.0.0.2".parse().unwrap()));
        assert_eq!(sources.of(5), Some("127.0.0.4".parse().unwrap()));
        let same_twice = choose(&["127.0.0.1:80", "127.0.0.1:80"], 4500, &[]).unwrap();
        assert_eq!(same_twice.count(), 2);
    }

    #[test]
    fn elsewhere_the_user_is_asked() {
        let sentence = choose(&["10.1.1.1:80"], 9001, &[]).unwrap_err();
        assert!(sentence.contains("need 2 source addresses"), "{sentence}");
        let given = choose(&["10.1.1.1:80"], 9001, &["10.1.1.8", "10.1.1.9"]).unwrap();
        assert_eq!(given.of(1), Some("10.1.1.9".parse().unwrap()));
        assert!(choose(&["10.1.1.1:80"], 9001, &["10.1.1.8"]).is_err());
        assert!(
            choose(&["10.1.1.1:80"], 1, &["::1"])
                .unwrap_err()
                .contains("family")
        );
    }
}
