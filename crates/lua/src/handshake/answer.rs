//! What `onHandshake` returns, checked before anybody acts on it.

use mlua::{LuaString, Value};
use moonwire_proto::Request;

use super::cookies::is_token;
use crate::error::lua_type;

/// What becomes of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HandshakeAnswer {
    /// It is accepted.
    Accept {
        /// One of the subprotocols that it offers.
        subprotocol: Option<String>,
        /// Fields of the 101 response.
        headers: Vec<(String, String)>,
    },
    /// It is refused.
    Refuse(HandshakeRefusal),
    /// It does not fit the memory of the instance, which goes on.
    DoesNotFit,
}

/// The response that refuses a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HandshakeRefusal {
    /// From 300 to 599.
    pub status: u16,
    /// What stands behind the status instead of its usual phrase.
    pub reason: Option<String>,
    /// Further fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reads the value. What makes no sense is an error, a clause: nobody is let in because a key is
/// misspelt.
pub(crate) fn read(
    value: &Value,
    more: &Value,
    request: &Request,
) -> Result<HandshakeAnswer, String> {
    if !more.is_nil() {
        return Err("it must return one value".to_owned());
    }
    if matches!(value, Value::Nil | Value::Boolean(true)) {
        return Ok(accepted(None, Vec::new()));
    }
    let Value::Table(table) = value else {
        let wanted = "it must return nothing, true or a table";
        return Err(match value.as_boolean() {
            Some(_) => format!("{wanted}, not false: {{ status = 403 }} refuses"),
            None => format!("{wanted}, not a {}", lua_type(value)),
        });
    };
    let mut fields = Fields::default();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        fields.take(&key, &value)?;
    }
    fields.answer(request)
}

fn accepted(subprotocol: Option<String>, headers: Vec<(String, String)>) -> HandshakeAnswer {
    HandshakeAnswer::Accept {
        subprotocol,
        headers,
    }
}

/// The members of the table, each checked for itself.
#[derive(Default)]
struct Fields {
    status: Option<u16>,
    reason: Option<String>,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    subprotocol: Option<String>,
}

impl Fields {
    fn take(&mut self, key: &Value, value: &Value) -> Result<(), String> {
        let name = key.as_string().map(LuaString::to_string_lossy);
        match name.as_deref().unwrap_or_default() {
            "status" => self.status = Some(status(value)?),
            "reason" => self.reason = Some(reason(value)?),
            "headers" => self.headers = headers(value)?,
            "body" => self.body = Some(body(value)?),
            "subprotocol" => self.subprotocol = Some(text("subprotocol", value)?),
            other => {
                return Err(format!(
                    "it returned a table with `{}`; there are status, reason, headers and body, \
                     or subprotocol and headers",
                    other.escape_debug()
                ));
            }
        }
        Ok(())
    }

    fn answer(self, request: &Request) -> Result<HandshakeAnswer, String> {
        let Some(status) = self.status else {
            if self.reason.is_some() || self.body.is_some() {
                return Err("a reason and a body need a status, which refuses".to_owned());
            }
            if let Some(chosen) = &self.subprotocol
                && !request.subprotocols().any(|offer| offer == chosen)
            {
                let chosen = chosen.escape_debug();
                return Err(format!(
                    "the client does not offer the subprotocol `{chosen}`"
                ));
            }
            return Ok(accepted(self.subprotocol, self.headers));
        };
        if self.subprotocol.is_some() {
            return Err("a status refuses, so there is no subprotocol".to_owned());
        }
        Ok(HandshakeAnswer::Refuse(HandshakeRefusal {
            status,
            reason: self.reason,
            headers: self.headers,
            body: self.body.unwrap_or_default(),
        }))
    }
}

fn status(value: &Value) -> Result<u16, String> {
    let number = number(value);
    // 1xx and 2xx would say that it was not refused.
    let status = number.filter(|number| (300.0..600.0).contains(number) && number.fract() == 0.0);
    let status = status.map(|number| number as u16);
    status.ok_or_else(|| "status must be a whole number from 300 to 599".to_owned())
}

fn number(value: &Value) -> Option<f64> {
    let whole = value.as_integer().map(|number| number as f64);
    whole.or_else(|| value.as_number())
}

fn reason(value: &Value) -> Result<String, String> {
    let reason = text("reason", value)?;
    let is_printable = reason.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_printable && reason.len() <= REASON_BYTES_MAX {
        return Ok(reason);
    }
    Err(format!(
        "reason must be at most {REASON_BYTES_MAX} printable characters of ASCII"
    ))
}

fn body(value: &Value) -> Result<Vec<u8>, String> {
    let Value::String(body) = value else {
        return Err(format!("body must be a string, not a {}", lua_type(value)));
    };
    let body = body.as_bytes();
    if body.len() > BODY_BYTES_MAX {
        return Err(format!("body must have at most {BODY_BYTES_MAX} bytes"));
    }
    Ok(body.to_vec())
}

/// Fields by their names, in the order of those: that of a table is another one each time.
fn headers(value: &Value) -> Result<Vec<(String, String)>, String> {
    let Value::Table(table) = value else {
        return Err(format!(
            "headers must be a table, not a {}",
            lua_type(value)
        ));
    };
    let mut fields = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair.map_err(|error| error.to_string())?;
        let name = header_name(&name)?;
        if let Value::Table(values) = &value {
            for item in 1..=values.raw_len().min(HEADERS_MAX + 1) {
                let value = values.raw_get(item).map_err(|error| error.to_string())?;
                fields.push((name.clone(), header_value(&name, &value)?));
            }
        } else {
            let value = header_value(&name, &value)?;
            fields.push((name, value));
        }
        let bytes: usize = fields.iter().map(|(n, v)| n.len() + v.len()).sum();
        if fields.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(format!(
                "headers must be at most {HEADERS_MAX} fields of {HEADER_BYTES_MAX} bytes together"
            ));
        }
    }
    // Stable: several values of one name keep their order.
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(fields)
}

fn header_name(name: &Value) -> Result<String, String> {
    let name = text("the name of a header", name)?;
    let lower = name.to_ascii_lowercase();
    if !is_token(&name) {
        let name = name.escape_debug();
        return Err(format!("headers: `{name}` is not one word, as HTTP has it"));
    }
    if OWN_HEADERS.contains(&&*lower) || lower.starts_with("sec-websocket-") {
        return Err(format!("headers: `{name}` belongs to the handshake"));
    }
    Ok(name)
}

fn header_value(name: &str, value: &Value) -> Result<String, String> {
    let value = match number(value) {
        Some(number) => number.to_string(),
        None => text(&format!("headers: the value of `{name}`"), value)?,
    };
    // CR and LF would begin a field or a body of somebody else's (RFC 9110, 5.5).
    match value.chars().any(|c| c.is_control() && c != '\t') {
        true => Err(format!(
            "headers: the value of `{name}` has a control character"
        )),
        false => Ok(value),
    }
}

fn text(what: &str, value: &Value) -> Result<String, String> {
    let Value::String(text) = value else {
        return Err(format!(
            "{what} must be a string, not a {}",
            lua_type(value)
        ));
    };
    let text = text.to_str().map_err(|_| format!("{what} must be UTF-8"))?;
    Ok(text.to_owned())
}

/// Fields that only the server writes.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

const REASON_BYTES_MAX: usize = 100;
/// Enough for a page that says what to do.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// As many as most clients take.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 * 1024;
