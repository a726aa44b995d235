//! Ranges of addresses as they are written: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The addresses that begin with the same bits (RFC 4632, 3.1). One of IPv4 written as IPv6
/// (`::ffff:10.0.0.0/104`, RFC 4291, 2.5.5.2) is the one of IPv4.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    /// The first address. Invariant: no bit is set after the first `bits`, and it is of IPv4 if it
    /// can be.
    address: IpAddr,
    /// How many bits are the same. Invariant: at most 32, or 128 for IPv6.
    bits: u8,
}

impl Cidr {
    /// 127.0.0.0/8.
    pub const LOOPBACK_V4: Self = Self {
        address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
        bits: 8,
    };
    /// ::1/128.
    pub const LOOPBACK_V6: Self = Self {
        address: IpAddr::V6(Ipv6Addr::LOCALHOST),
        bits: 128,
    };

    /// Whether `address`, in its canonical form, is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                masked(address, self.bits) == wide(self.address)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl Cidr {
    /// The range that is written, or the one with the same prefix if its address is not the first.
    pub fn containing(text: &str) -> Result<Self, String> {
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let first = match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
            (Ok(address), Ok(bits)) if bits <= width(address) => first(address, bits),
            _ => return text.parse(),
        };
        format!("{first}/{bits}").parse()
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let wrong =
            || format!("`{text}` is not a range of addresses; write one such as 10.0.0.0/8");
        let written: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = width(written);
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => width,
        };
        if bits > width {
            return Err(format!("`{text}` has more than {width} bits"));
        }
        let address = written.to_canonical();
        let (address, bits) = match bits.checked_sub(width - self::width(address)) {
            Some(bits) => (address, bits),
            // A range that is wider than all of IPv4 is one of IPv6.
            None => (written, bits),
        };
        if masked(address, bits) != wide(address) {
            let first = first(address, bits);
            return Err(format!(
                "`{text}` has bits beyond its prefix; write {first}/{bits}"
            ));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits of the address, from the top.
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The same with only the first `bits` left.
fn masked(address: IpAddr, bits: u8) -> u128 {
    let cut = 128 - u32::from(bits.min(128));
    wide(address)
        .checked_shr(cut)
        .and_then(|kept| kept.checked_shl(cut))
        .unwrap_or(0)
}

fn first(address: IpAddr, bits: u8) -> IpAddr {
    let masked = masked(address, bits);
    match address {
        IpAddr::V4(_) => IpAddr::V4(((masked >> 96) as u32).into()),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(masked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(cidr: &str, address: &str) -> bool {
        let cidr: Cidr = cidr.parse().unwrap();
        cidr.contains(address.parse().unwrap())
    }

    #[test]
    fn a_range_ends_where_its_prefix_does() {
        assert!(has("127.0.0.0/8", "127.255.255.255") && !has("127.0.0.0/8", "128.0.0.0"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("0.0.0.0/0", "255.1.2.3") && !has("0.0.0.0/0", "::1"));
        assert!(has("::1/128", "::1") && !has("::1/128", "::2"));
        assert!(
            has("2001:db8::/33", "2001:db8:7fff::9") && !has("2001:db8::/33", "2001:db8:8000::")
        );
        assert!(has("::/0", "fe80::1") && !has("::/0", "10.0.0.1"));
    }

    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        assert!(has("::ffff:10.0.0.0/104", "10.9.9.9") && !has("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert_eq!(
            "::ffff:1.2.3.4".parse::<Cidr>().unwrap().to_string(),
            "1.2.3.4/32"
        );
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for (text, part) in [
            ("localhost", "is not a range"),
            ("10.0.0.0/x", "is not a range"),
            ("10.0.0.0/+8", "is not a range"),
            ("10.0.0.0/33", "more than 32 bits"),
            ("::/129", "more than 128 bits"),
            ("10.1.0.0/8", "write 10.0.0.0/8"),
            ("2001:db8::1/64", "write 2001:db8::/64"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
