//! What `onHandshake` returns, checked before anybody acts on it.

use mlua::{LuaString, Value};
use moonwire_proto::{Request, is_token};

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
        let name = key.as_string().map(LuaString::as_bytes);
        match name.as_deref().unwrap_or_default() {
            b"status" => self.status = Some(status(value)?),
            b"reason" => self.reason = Some(reason(value)?),
            b"headers" => self.headers = Headers::read(value)?,
            b"body" => self.body = Some(body(value)?),
            b"subprotocol" => {
                self.subprotocol = Some(text("subprotocol", value, HEADER_BYTES_MAX)?);
            }
            other => {
                return Err(format!(
                    "it returned a table with `{}`; there are status, reason, headers and body, \
                     or subprotocol and headers",
                    shown(other)
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
                let chosen = shown(chosen.as_bytes());
                return Err(format!(
                    "the client does not offer the subprotocol `{chosen}`"
                ));
            }
            return Ok(accepted(self.subprotocol, self.headers));
        };
        if self.subprotocol.is_some() {
            return Err("a status refuses, so there is no subprotocol".to_owned());
        }
        // Its bytes would be taken for the next response (RFC 9110, 15.4.5).
        if status == 304 && self.body.as_ref().is_some_and(|body| !body.is_empty()) {
            return Err("a response with status 304 has no body".to_owned());
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
    let reason = text("reason", value, REASON_BYTES_MAX)?;
    if reason.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
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

/// Further fields, as many and as long as there may be: what a callback returns is read after its
/// time has been looked at, and must not take long.
#[derive(Default)]
struct Headers {
    fields: Vec<(String, String)>,
    bytes: usize,
}

impl Headers {
    /// Fields by their names, in the order of those: that of a table is another one each time.
    fn read(value: &Value) -> Result<Vec<(String, String)>, String> {
        let Value::Table(table) = value else {
            return Err(format!(
                "headers must be a table, not a {}",
                lua_type(value)
            ));
        };
        let mut headers = Self::default();
        for (count, pair) in table.pairs::<Value, Value>().enumerate() {
            if count == HEADERS_MAX {
                return Err(too_many());
            }
            let (name, value) = pair.map_err(|error| error.to_string())?;
            headers.take(&header_name(&name)?, &value)?;
        }
        let mut fields = headers.fields;
        // Stable: several values of one name keep their order.
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(fields)
    }

    /// One value, or a table of several.
    fn take(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let Value::Table(values) = value else {
            return self.add(name, value);
        };
        for item in 1..=values.raw_len() {
            let value: Value = values.raw_get(item).map_err(|error| error.to_string())?;
            self.add(name, &value)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let free = HEADER_BYTES_MAX.saturating_sub(self.bytes + name.len());
        if self.fields.len() == HEADERS_MAX || free == 0 {
            return Err(too_many());
        }
        let value = header_value(name, value, free)?;
        self.bytes += name.len() + value.len();
        self.fields.push((name.to_owned(), value));
        Ok(())
    }
}

fn too_many() -> String {
    format!("headers must be at most {HEADERS_MAX} fields of {HEADER_BYTES_MAX} bytes together")
}

fn header_name(name: &Value) -> Result<String, String> {
    let name = text("the name of a header", name, HEADER_BYTES_MAX)?;
    let lower = name.to_ascii_lowercase();
    if !is_token(&name) {
        let name = shown(name.as_bytes());
        return Err(format!("headers: `{name}` is not one word, as HTTP has it"));
    }
    if OWN_HEADERS.contains(&&*lower) || lower.starts_with("sec-websocket-") {
        let name = shown(name.as_bytes());
        return Err(format!("headers: `{name}` belongs to the handshake"));
    }
    Ok(name)
}

fn header_value(name: &str, value: &Value, bytes_max: usize) -> Result<String, String> {
    let what = || format!("headers: the value of `{}`", shown(name.as_bytes()));
    let value = match (number(value), value) {
        (Some(number), _) => number.to_string(),
        (None, Value::String(text)) if text.as_bytes().len() > bytes_max => return Err(too_many()),
        (None, _) => text(&what(), value, bytes_max)?,
    };
    // CR and LF would begin a field or a body of somebody else's (RFC 9110, 5.5).
    match value.chars().any(|c| c.is_control() && c != '\t') {
        true => Err(format!("{} has a control character", what())),
        false => Ok(value),
    }
}

fn text(what: &str, value: &Value, bytes_max: usize) -> Result<String, String> {
    let Value::String(text) = value else {
        return Err(format!(
            "{what} must be a string, not a {}",
            lua_type(value)
        ));
    };
    if text.as_bytes().len() > bytes_max {
        return Err(format!("{what} must have at most {bytes_max} bytes"));
    }
    let text = text.to_str().map_err(|_| format!("{what} must be UTF-8"))?;
    Ok(text.to_owned())
}

/// The beginning of a name for a sentence.
fn shown(name: &[u8]) -> String {
    let begin = &name[..name.len().min(NAME_BYTES_SHOWN)];
    String::from_utf8_lossy(begin).escape_debug().to_string()
}

/// Fields that only the server writes.
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

const NAME_BYTES_SHOWN: usize = 100;
const REASON_BYTES_MAX: usize = 100;
/// Enough for a page that says what to do.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// As many as most clients take.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 * 1024;
