//! Who may connect at all, by network address.

use std::net::IpAddr;

use crate::cidr::Cidr;

/// An access control list: a policy for everybody, and whom it is not for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Acl {
    /// What holds for everybody else.
    pub policy: AclPolicy,
    /// Those for whom the opposite holds.
    pub exclude: Vec<Cidr>,
}

/// What an access control list says of those whom it does not name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AclPolicy {
    /// They may connect.
    #[default]
    Allow,
    /// They may not.
    Deny,
}

impl Acl {
    /// Whether a client at `address` may connect. An address of IPv4 is the same in both notations.
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_excluded = self.exclude.iter().any(|range| range.contains(address));
        match self.policy {
            AclPolicy::Allow => !is_excluded,
            AclPolicy::Deny => is_excluded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(policy: AclPolicy, exclude: &[&str]) -> Acl {
        let exclude = exclude.iter().map(|range| range.parse().unwrap()).collect();
        Acl { policy, exclude }
    }

    #[test]
    fn exceptions_are_from_the_policy() {
        let allow = acl(
            AclPolicy::Allow,
            &["192.168.13.0/24", "2001:db8::/32", "10.1.1.1"],
        );
        let deny = acl(
            AclPolicy::Deny,
            &["192.168.13.0/24", "2001:db8::/32", "10.1.1.1"],
        );
        for (address, is_listed) in [
            ("192.168.13.0", true),
            ("192.168.13.255", true),
            ("::ffff:192.168.13.7", true),
            ("192.168.14.0", false),
            ("192.168.12.255", false),
            ("10.1.1.1", true),
            ("10.1.1.2", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(allow.admits(address), !is_listed, "{address}");
            assert_eq!(deny.admits(address), is_listed, "{address}");
        }
    }

    #[test]
    fn without_exceptions_the_policy_is_for_all() {
        let loopback = "127.0.0.1".parse().unwrap();
        assert!(Acl::default().admits(loopback));
        assert!(!acl(AclPolicy::Deny, &[]).admits(loopback));
    }
}
