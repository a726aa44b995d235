//! The cookies of a request (RFC 6265, 4.2.1).

use moonwire_proto::is_token;

/// Names and values of a `Cookie` field, in its order. What is no pair of them is left out: a
/// client may send what other servers have set.
pub(super) fn cookies(field: &str) -> impl Iterator<Item = (&str, &str)> {
    field.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim_matches(WHITESPACE);
        let value = value.trim_matches(WHITESPACE);
        let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        let value = quoted.unwrap_or(value);
        let is_cookie = is_token(name) && value.bytes().all(is_cookie_octet);
        is_cookie.then_some((name, value))
    })
}

/// Visible, but for what would end or split a value somewhere.
fn is_cookie_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

const WHITESPACE: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_other_things_left_out() {
        for (field, expected) in [
            ("a=b", &[("a", "b")][..]),
            ("a=b; c=d=e;f=", &[("a", "b"), ("c", "d=e"), ("f", "")]),
            (
                "a=\"quoted\";\tb = spaced ",
                &[("a", "quoted"), ("b", "spaced")],
            ),
            ("a=1; a=2", &[("a", "1"), ("a", "2")]),
            ("", &[]),
            (";;  ; lonely; =nameless", &[]),
            (
                "a b=c; d=e f; g=h,i; j=k\\l; m=\"n; ä=o; p=ä; q=r",
                &[("q", "r")],
            ),
        ] {
            let found: Vec<_> = cookies(field).collect();
            assert_eq!(found, expected, "{field}");
        }
    }
}
