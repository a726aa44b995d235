//! Lua values to JSON text.

use std::ops::Range;

use mlua::{Table, Value};

use crate::error::lua_type;
use crate::json::{DEPTH_MAX, is_marked};
use crate::watchdog;

/// Memory that is reused between calls.
#[derive(Default)]
pub(crate) struct Buffers {
    text: Vec<u8>,
    /// The keys of the objects that are being written, outermost first. Held as bytes: references
    /// to Lua strings are few (about 8,000 in LuaJIT), and an object may have more keys.
    keys: Vec<u8>,
    /// Where each key is in `keys`, in the order of writing.
    fields: Vec<Range<usize>>,
}

/// Why a value has no JSON.
pub(crate) enum Failure {
    /// It cannot be expressed; with the path to it.
    Value(String),
    /// Lua failed, for lack of memory.
    Lua(mlua::Error),
}

/// Writes `value` into the buffers and returns the text.
pub(crate) fn encode<'a>(
    value: &Value,
    array: &Table,
    buffers: &'a mut Buffers,
) -> Result<&'a [u8], Failure> {
    buffers.clear();
    let result = Writer { buffers, array }.value(value, 0);
    match result {
        Ok(()) => Ok(&buffers.text),
        Err(Stop::Problem { path, problem }) if path.is_empty() => Err(Failure::Value(problem)),
        Err(Stop::Problem { path, problem }) => Err(Failure::Value(format!(
            "{problem}, at {}",
            path.trim_start_matches('.')
        ))),
        Err(Stop::Lua(error)) => Err(Failure::Lua(error)),
    }
}

impl Buffers {
    fn clear(&mut self) {
        self.text.clear();
        self.keys.clear();
        self.fields.clear();
        self.text.shrink_to(KEEP_BYTES);
        self.keys.shrink_to(KEEP_BYTES);
        self.fields
            .shrink_to(KEEP_BYTES / size_of::<Range<usize>>());
    }
}

struct Writer<'a> {
    buffers: &'a mut Buffers,
    array: &'a Table,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Stop> {
        let text = &mut self.buffers.text;
        if text.len() > TEXT_BYTES_MAX {
            return Err(Stop::new(format!("more than {TEXT_BYTES_MAX} bytes")));
        }
        match value {
            Value::Nil => text.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                text.extend_from_slice(b"null");
            }
            Value::Boolean(flag) => write_scalar(text, flag),
            Value::Integer(number) => write_scalar(text, number),
            Value::Number(number) => return write_number(text, *number),
            Value::String(string) => return write_string(text, &string.as_bytes()),
            Value::Table(_) if depth == DEPTH_MAX => {
                return Err(Stop::new(format!(
                    "more than {DEPTH_MAX} tables within each other"
                )));
            }
            Value::Table(table) => return self.table(table, depth + 1),
            Value::LightUserData(_)
            | Value::Function(_)
            | Value::Thread(_)
            | Value::UserData(_)
            | Value::Error(_)
            | Value::Other(_) => {
                return Err(Stop::new(format!("a {} has no JSON", lua_type(value))));
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), Stop> {
        // One table may be in many places, each of which is written.
        if watchdog::is_over() {
            return Err(Stop::new("it took too long".to_owned()));
        }
        let (keys_before, fields_before) = (self.buffers.keys.len(), self.buffers.fields.len());
        match self.shape(table)? {
            Shape::Array(len) => self.items(table, len, depth)?,
            Shape::Object => self.fields(table, fields_before, depth)?,
        }
        self.buffers.keys.truncate(keys_before);
        self.buffers.fields.truncate(fields_before);
        Ok(())
    }

    /// Looks at every key; those of an object are left in `keys` and `fields`.
    fn shape(&mut self, table: &Table) -> Result<Shape, Stop> {
        let Buffers { keys, fields, .. } = &mut *self.buffers;
        let fields_before = fields.len();
        let (mut indices, mut index_max, mut odd) = (0usize, 0, None);
        // The value is taken as a boolean because that makes no reference to it.
        table.for_each(|key: Value, _: bool| {
            if let Value::String(key) = &key {
                let start = keys.len();
                keys.extend_from_slice(&key.as_bytes());
                fields.push(start..keys.len());
            } else if let Value::Integer(index @ 1..) = key {
                indices += 1;
                index_max = index_max.max(index);
            } else {
                odd = Some(lua_type(&key));
            }
            Ok(())
        })?;
        if let Some(odd) = odd {
            return Err(Stop::new(format!(
                "a table with this kind of key has no JSON: {odd}"
            )));
        }
        match (indices, fields.len() - fields_before) {
            (0, 0) if is_marked(table, self.array) => Ok(Shape::Array(0)),
            (0, _) => Ok(Shape::Object),
            (_, 0) if usize::try_from(index_max) == Ok(indices) => Ok(Shape::Array(indices)),
            (_, 0) => Err(Stop::new("an array with holes has no JSON".to_owned())),
            _ => Err(Stop::new(
                "a table with both names and numbers has no JSON".to_owned(),
            )),
        }
    }

    fn items(&mut self, table: &Table, len: usize, depth: usize) -> Result<(), Stop> {
        self.buffers.text.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.buffers.text.push(b',');
            }
            let item: Value = table.raw_get(index)?;
            self.value(&item, depth)
                .map_err(|stop| stop.within(&format!("[{index}]")))?;
        }
        self.buffers.text.push(b']');
        Ok(())
    }

    /// Writes the fields from `first` on, in byte order of their keys.
    fn fields(&mut self, table: &Table, first: usize, depth: usize) -> Result<(), Stop> {
        let Buffers { keys, fields, text } = &mut *self.buffers;
        let end = fields.len();
        fields[first..].sort_unstable_by(|a, b| keys[a.clone()].cmp(&keys[b.clone()]));
        text.push(b'{');
        for field in first..end {
            let Buffers { keys, fields, text } = &mut *self.buffers;
            if field > first {
                text.push(b',');
            }
            let key = &keys[fields[field].clone()];
            write_string(text, key)?;
            text.push(b':');
            let value: Value = table.raw_get(BytesKey(key))?;
            self.value(&value, depth).map_err(|stop| {
                let Buffers { keys, fields, .. } = &*self.buffers;
                let key = String::from_utf8_lossy(&keys[fields[field].clone()]);
                stop.within(&format!(".{key}"))
            })?;
        }
        self.buffers.text.push(b'}');
        Ok(())
    }
}

/// Bytes that Lua takes as a string; a slice of bytes alone would become a table of numbers.
struct BytesKey<'a>(&'a [u8]);

impl mlua::IntoLua for BytesKey<'_> {
    fn into_lua(self, lua: &mlua::Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

/// What a table is.
enum Shape {
    /// With so many items.
    Array(usize),
    /// With the keys that were collected.
    Object,
}

/// Why the writer stopped.
enum Stop {
    Problem { path: String, problem: String },
    Lua(mlua::Error),
}

impl Stop {
    fn new(problem: String) -> Self {
        Self::Problem {
            path: String::new(),
            problem,
        }
    }

    /// The same, seen from the table that holds it under `step`.
    fn within(mut self, step: &str) -> Self {
        if let Self::Problem { path, .. } = &mut self
            && path.len() < PATH_BYTES_MAX
        {
            path.insert_str(0, step);
        }
        self
    }
}

impl From<mlua::Error> for Stop {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// Integers are written as integers, also those that Lua would print with an exponent.
fn write_number(text: &mut Vec<u8>, number: f64) -> Result<(), Stop> {
    if !number.is_finite() {
        return Err(Stop::new(format!("the number {number} has no JSON")));
    }
    if number.fract() == 0.0 && number.abs() < INTEGERS_BELOW {
        write_scalar(text, &(number as i64));
    } else {
        write_scalar(text, &number);
    }
    Ok(())
}

fn write_string(text: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Stop> {
    let string = simdutf8::basic::from_utf8(bytes)
        .map_err(|_| Stop::new("a string that is not UTF-8 has no JSON".to_owned()))?;
    if bytes.chunks(CHUNK_BYTES).all(is_plain) {
        text.push(b'"');
        text.extend_from_slice(bytes);
        text.push(b'"');
    } else {
        write_scalar(text, string);
    }
    Ok(())
}

/// Whether nothing needs an escape (RFC 8259, 7). Looks at all bytes without leaving early, so that
/// the compiler can look at many at once.
fn is_plain(bytes: &[u8]) -> bool {
    let escaped = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    !bytes
        .iter()
        .fold(false, |found, byte| found | escaped(byte))
}

/// Escapes, and the shortest digits that read back the same.
fn write_scalar<T: serde::Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("a Vec takes every scalar");
}

/// 2^63: integers below it fit an i64.
const INTEGERS_BELOW: f64 = 9_223_372_036_854_775_808.0;

/// How far a string is read before it is known that there is something to escape.
const CHUNK_BYTES: usize = 64;

/// A text that is longer takes no more values.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Memory that is kept between calls.
const KEEP_BYTES: usize = 1024 * 1024;

/// A path in an error message stops growing here.
const PATH_BYTES_MAX: usize = 200;
