//! `murmur`: the 64-bit hash of strings that LAppS has from the C++ library of GCC.

use mlua::{Lua, Table, Value};

use crate::modules::run_prelude;

/// The module.
pub(crate) fn module(lua: &Lua) -> mlua::Result<Table> {
    let hex = lua.create_function(|_, value: Value| {
        Ok(of_value(&value).map(|hash| format!("{hash:016x}")))
    })?;
    let number =
        lua.create_function(|_, value: Value| Ok(of_value(&value).map(|hash| hash as f64)))?;
    run_prelude(lua, include_str!("../prelude/murmur.lua"), (hex, number))
}

/// A number is its own hash, without its fraction.
fn of_value(value: &Value) -> Option<u64> {
    if let Value::String(text) = value {
        return Some(hash(&text.as_bytes()));
    }
    let whole = value.as_integer().map(|number| number as u64);
    whole.or_else(|| value.as_number().map(|number| number as i64 as u64))
}

/// `std::hash<std::string>` of libstdc++ on 64 bits: MurmurHash64A with its own seed.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = mixed(little_endian(word).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(FACTOR);
    }
    mixed(mixed(hash).wrapping_mul(FACTOR))
}

fn mixed(word: u64) -> u64 {
    word ^ (word >> 47)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

const SEED: u64 = 0xc70f_6907;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by a program of g++ 12 with `std::hash<std::string>`.
    #[test]
    fn hashes_are_those_of_libstdcxx() {
        for (text, wanted) in [
            ("", 0x553e_9390_1e46_2a6e),
            ("a", 0x454d_dee4_88c1_ed6b),
            ("1234567", 0x6d7a_4e79_e8a2_cbf6),
            ("12345678", 0x8c5b_90a3_3a04_dca5),
            ("123456789", 0xaaeb_28d3_d5f1_65c0),
            ("grüße", 0x84d7_7eb2_c419_edd4),
            (
                "a longer text of more than one word, and 5",
                0x2353_9729_abb6_4e44,
            ),
        ] {
            assert_eq!(hash(text.as_bytes()), wanted, "{text}");
        }
    }
}
