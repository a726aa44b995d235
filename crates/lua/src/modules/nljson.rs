//! `nljson`: JSON and CBOR documents as services of LAppS have them.

mod value;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{AnyUserData, Function, Lua, LuaString, Table, Value};

use crate::document::{
    Ledger, Node, Problem, from_cbor, from_json, to_cbor, to_json, to_json_pretty,
};
use crate::modules::run_prelude;

/// A document or a container within one, as a script holds it.
pub(crate) struct Document(pub(crate) Node);

/// Makes documents of one machine, and keeps them within its memory.
#[derive(Clone)]
pub(crate) struct Documents(Rc<Counts>);

struct Counts {
    ledger: Ledger,
    /// With more bytes than this the garbage of the machine is collected: it sees handles of some
    /// bytes only, however large what they keep.
    collect_at_bytes: Cell<usize>,
}

impl Documents {
    /// With this bound on the bytes of all documents of the machine.
    pub(crate) fn new(bytes_max: Option<usize>) -> Self {
        Self(Rc::new(Counts {
            ledger: Ledger::new(bytes_max),
            collect_at_bytes: Cell::new(COLLECT_BYTES),
        }))
    }

    /// Bytes that they hold, garbage included.
    pub(crate) fn bytes(&self) -> usize {
        self.0.ledger.bytes()
    }

    /// How long a text of one may become: it is written outside of the machine, whose bound would
    /// hold only once it is there as a whole.
    fn text_bytes_max(&self) -> usize {
        self.0.ledger.bytes_max().min(TEXT_BYTES_MAX)
    }

    /// The handle of a document for a script.
    pub(crate) fn handle(&self, lua: &Lua, node: Node) -> mlua::Result<AnyUserData> {
        if self.bytes() > self.0.collect_at_bytes.get() {
            lua.gc_collect()?;
            self.0
                .collect_at_bytes
                .set(self.bytes() + self.bytes().clamp(COLLECT_BYTES, COLLECT_BYTES_MAX));
        }
        lua.create_any_userdata(Document(node))
    }

    /// Collects garbage where a container could not take so many bytes of text otherwise.
    fn make_room(&self, lua: &Lua, text_bytes: usize) -> mlua::Result<()> {
        if self.0.ledger.left() < text_bytes.saturating_add(ROOM_BYTES) {
            lua.gc_collect()?;
        }
        Ok(())
    }

    /// Does what takes memory; if there is none left, once more without garbage.
    pub(crate) fn make<T>(
        &self,
        lua: &Lua,
        make: impl Fn(&Ledger) -> Result<T, Problem>,
    ) -> mlua::Result<Result<T, Problem>> {
        match make(&self.0.ledger) {
            Err(Problem::Full) => {
                lua.gc_collect()?;
                Ok(make(&self.0.ledger))
            }
            done => Ok(done),
        }
    }
}

/// The global `nljson`.
pub(crate) fn module(lua: &Lua, documents: &Documents) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    reading(lua, &host, documents)?;
    writing(lua, &host, documents)?;
    access(lua, &host, documents)?;
    let code = include_str!("../prelude/nljson.lua");
    let (module, index, newindex, text): (Table, Function, Function, Function) =
        run_prelude(lua, code, host)?;
    lua.register_userdata_type::<Document>(|registry| {
        use mlua::UserDataFields;
        registry.add_meta_field("__index", index);
        registry.add_meta_field("__newindex", newindex);
        registry.add_meta_field("__tostring", text);
    })?;
    // The first one makes the metatable, which must not happen where memory may be short: the error
    // would not be caught.
    drop(lua.create_any_userdata(Document(Node::Null))?);
    Ok(module)
}

/// Every function of the host returns this: what it was asked for, or why not.
type Answer<T> = mlua::Result<(Option<T>, Option<String>)>;

fn answer<T>(result: Result<T, impl ToString>) -> (Option<T>, Option<String>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(problem) => (None, Some(problem.to_string())),
    }
}

fn reading(lua: &Lua, host: &Table, documents: &Documents) -> mlua::Result<()> {
    type Read = fn(&[u8], &Ledger) -> Result<Node, Problem>;
    for (name, read) in [("decode", from_json as Read), ("from_cbor", from_cbor)] {
        let documents = documents.clone();
        let function = move |lua: &Lua, text: Value| -> Answer<AnyUserData> {
            let Value::String(text) = text else {
                return Ok((None, Some(unexpected("a string", &text))));
            };
            let node = documents.make(lua, |ledger| read(&text.as_bytes(), ledger))?;
            match node {
                Ok(node) => Ok((Some(documents.handle(lua, node)?), None)),
                Err(problem) => Ok((None, Some(problem.to_string()))),
            }
        };
        host.raw_set(name, lua.create_function(function)?)?;
    }
    Ok(())
}

fn writing(lua: &Lua, host: &Table, documents: &Documents) -> mlua::Result<()> {
    let bytes_max = documents.text_bytes_max();
    let function =
        move |lua: &Lua, value: Value| written(lua, &value, |node| to_json(node, bytes_max));
    host.raw_set("encode", lua.create_function(function)?)?;
    let function = |lua: &Lua, value: Value| written(lua, &value, to_cbor);
    host.raw_set("to_cbor", lua.create_function(function)?)?;
    let function = move |lua: &Lua, (value, indent): (Value, Value)| {
        let indent = match indent.is_nil() {
            true => Some(INDENT),
            false => indent.as_integer().filter(|n| (0..=INDENT_MAX).contains(n)),
        };
        let Some(indent) = indent.and_then(|indent| usize::try_from(indent).ok()) else {
            let problem = format!("indent must be an integer from 0 to {INDENT_MAX}");
            return Ok((None, Some(problem)));
        };
        written(lua, &value, |node| match indent {
            0 => to_json(node, bytes_max),
            _ => to_json_pretty(node, indent, bytes_max),
        })
    };
    host.raw_set("encode_pretty", lua.create_function(function)?)
}

fn written(
    lua: &Lua,
    value: &Value,
    write: impl Fn(&Node) -> Result<Vec<u8>, Problem>,
) -> Answer<LuaString> {
    match with(value, write) {
        Ok(Ok(text)) => Ok((Some(lua.create_string(text)?), None)),
        Ok(Err(problem)) => Ok((None, Some(problem.to_string()))),
        Err(problem) => Ok((None, Some(problem))),
    }
}

fn access(lua: &Lua, host: &Table, documents: &Documents) -> mlua::Result<()> {
    let made = documents.clone();
    // The third value tells that there is nothing: null is nil, too.
    let get = move |lua: &Lua, (document, key): (Value, Value)| match with(&document, |node| {
        value::get(node, &key)
    })
    .flatten()
    {
        Ok(Some(node)) => Ok((value::to_lua(lua, node, &made)?, None, false)),
        Ok(None) => Ok((Value::Nil, None, true)),
        Err(problem) => Ok((Value::Nil, Some(problem), true)),
    };
    host.raw_set("get", lua.create_function(get)?)?;
    let made = documents.clone();
    let set = move |lua: &Lua, (document, key, value): (Value, Value, Value)| {
        let new = made.make(lua, |ledger| value::from_lua(lua, &value, ledger))?;
        if let Ok(new) = &new {
            made.make_room(lua, new.text_bytes())?;
        }
        let result = new
            .map_err(|problem| problem.to_string())
            .and_then(|new| with(&document, |node| value::set(node, &key, new))?);
        Ok(result.err())
    };
    host.raw_set("set", lua.create_function(set)?)?;
    let made = documents.clone();
    let find = move |lua: &Lua, (document, key): (Value, Value)| match with(&document, |node| {
        value::find(lua, node, &key)
    }) {
        Ok(found) => match found? {
            Some(node) => Ok((value::to_lua(lua, node, &made)?, None)),
            None => Ok((Value::Nil, None)),
        },
        Err(problem) => Ok((Value::Nil, Some(problem))),
    };
    host.raw_set("find", lua.create_function(find)?)?;
    let erase = |_: &Lua, (document, key): (Value, Value)| {
        Ok(answer(with(&document, |node| value::erase(node, &key))))
    };
    host.raw_set("erase", lua.create_function(erase)?)?;
    shape(lua, host)
}

fn shape(lua: &Lua, host: &Table) -> mlua::Result<()> {
    let kind = |_: &Lua, value: Value| Ok(with(&value, Node::type_name).ok());
    host.raw_set("kind", lua.create_function(kind)?)?;
    let count = |_: &Lua, value: Value| Ok(with(&value, value::count).unwrap_or(0));
    host.raw_set("count", lua.create_function(count)?)?;
    let keys = |lua: &Lua, value: Value| match with(&value, |node| value::keys(lua, node)) {
        Ok(keys) => keys,
        Err(_) => lua.create_table(),
    };
    host.raw_set("keys", lua.create_function(keys)?)
}

/// Shows the document behind `value` to `look`, or says that there is none.
pub(crate) fn with<T>(value: &Value, look: impl FnOnce(&Node) -> T) -> Result<T, String> {
    let document = value
        .as_userdata()
        .and_then(|data| data.borrow::<Document>().ok());
    match document {
        Some(document) => Ok(look(&document.0)),
        None => Err(unexpected("a value of nljson", value)),
    }
}

fn unexpected(wanted: &str, found: &Value) -> String {
    format!("expected {wanted}, not a {}", crate::error::lua_type(found))
}

/// What a container may take for a new key or index beside its text, if no gap is filled.
const ROOM_BYTES: usize = 1024;

/// Bytes of documents between two collections of garbage: as many as there were, but not fewer than
/// the first and not more than the second.
const COLLECT_BYTES: usize = 8 * 1024 * 1024;
const COLLECT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest text of a document where the machine may hold more, or has no bound.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Spaces of `encode_pretty` where none are asked for, and the most of them.
const INDENT: i64 = 2;
const INDENT_MAX: i64 = 32;
