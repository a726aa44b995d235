//! Close codes and the payload of a close frame (RFC 6455, 5.5.1 and 7.4).

use alloc::vec::Vec;
use core::{fmt, str};

use crate::error::ProtocolError;
use crate::frame::CONTROL_BYTES_MAX;

/// A close code that may appear on the wire: 1000 to 1003, 1007 to 1014, 3000 to 4999.
///
/// The codes that only name a local condition (1005, 1006, 1015) and the reserved ones cannot be
/// made, so they cannot be sent (RFC 6455, 7.4.1).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1000: the purpose of the connection has been fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// 1001: the endpoint goes away.
    pub const GOING_AWAY: Self = Self(1001);
    /// 1002: the peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1003: a kind of data that cannot be accepted.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// 1007: data that do not fit the type of the message, such as text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// 1008: a message that breaks the endpoint's policy.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// 1009: a message that is too big to process.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// 1010: the server did not negotiate an extension that the client needs.
    pub const MANDATORY_EXTENSION: Self = Self(1010);
    /// 1011: an unexpected condition at the endpoint.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// 1012: the service restarts.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// 1013: try again later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// 1014: a gateway got an invalid response from upstream.
    pub const BAD_GATEWAY: Self = Self(1014);

    /// The code with this number, if it may appear on the wire.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads the payload of a close frame: code and reason.
pub(crate) fn decode(payload: &[u8]) -> Result<(Option<CloseCode>, &str), ProtocolError> {
    if payload.is_empty() {
        return Ok((None, ""));
    }
    let (&code, reason) = payload
        .split_first_chunk()
        .ok_or(ProtocolError::ClosePayloadTooShort)?;
    let code = u16::from_be_bytes(code);
    let code = CloseCode::new(code).ok_or(ProtocolError::CloseCodeInvalid(code))?;
    let reason = str::from_utf8(reason).map_err(|_| ProtocolError::Utf8Invalid)?;
    Ok((Some(code), reason))
}

/// The payload of a close frame; a reason that does not fit is cut at the end of a character.
pub(crate) fn encode(code: CloseCode, reason: &str) -> Vec<u8> {
    let code = code.as_u16().to_be_bytes();
    let fitting = reason.floor_char_boundary(CONTROL_BYTES_MAX - code.len());
    let reason = reason.get(..fitting).unwrap_or_default();
    [&code, reason.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn exactly_the_codes_of_section_7_4_are_valid() {
        for code in 0..=u16::MAX {
            let valid = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            assert_eq!(
                CloseCode::new(code).map(CloseCode::as_u16),
                valid.then_some(code)
            );
            let payload = code.to_be_bytes();
            let expected = match valid {
                true => Ok((CloseCode::new(code), "")),
                false => Err(ProtocolError::CloseCodeInvalid(code)),
            };
            assert_eq!(decode(&payload), expected);
        }
    }

    #[test]
    fn payloads_of_every_shape() {
        assert_eq!(decode(b""), Ok((None, "")));
        assert_eq!(decode(b"\x03"), Err(ProtocolError::ClosePayloadTooShort));
        assert_eq!(decode(b"\x03\xe8bye"), Ok((Some(CloseCode::NORMAL), "bye")));
        assert_eq!(decode(b"\x03\xe8\xff"), Err(ProtocolError::Utf8Invalid));
        assert_eq!(decode(b"\x03\xe8\xce"), Err(ProtocolError::Utf8Invalid));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let payload = encode(CloseCode::GOING_AWAY, &"é".repeat(100));
        assert_eq!(payload.len(), 124);
        assert_eq!(
            decode(&payload),
            Ok((Some(CloseCode::GOING_AWAY), &*"é".repeat(61)))
        );
        assert_eq!(encode(CloseCode::NORMAL, ""), vec![0x03, 0xe8]);
    }
}
