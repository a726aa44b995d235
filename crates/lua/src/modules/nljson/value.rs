//! Between the values of Lua and the nodes of a document.

use mlua::{FromLua, Lua, LuaString, Table, Value};

use super::{Document, Documents, unexpected};
use crate::document::{Array, DEPTH_MAX, Ledger, Node, Object, Problem};
use crate::error::lua_type;
use crate::watchdog;

/// As a script sees it: null is nil, a container is a handle.
pub(super) fn to_lua(lua: &Lua, node: Node, documents: &Documents) -> mlua::Result<Value> {
    Ok(match node {
        Node::Null => Value::Nil,
        Node::Boolean(flag) => Value::Boolean(flag),
        Node::Unsigned(number) => Value::Number(number as f64),
        Node::Negative(number) => Value::Number(number as f64),
        Node::Float(number) => Value::Number(number),
        Node::Text(text) => Value::String(lua.create_string(text)?),
        Node::Array(_) | Node::Object(_) => Value::UserData(documents.handle(lua, node)?),
    })
}

/// `document[key]`. A missing key is None, a key that does not fit the container an error.
pub(super) fn get(node: &Node, key: &Value) -> Result<Option<Node>, String> {
    match (node, key) {
        (Node::Object(object), Value::String(key)) => Ok(object.get(&key.as_bytes())),
        (Node::Array(array), Value::Integer(_) | Value::Number(_)) => {
            Ok(position(key).and_then(|index| array.get(index)))
        }
        _ => Err(misfit(node, key, "read")),
    }
}

/// `document[key] = value`.
pub(super) fn set(node: &Node, key: &Value, value: Node) -> Result<(), String> {
    let result = match (node, key) {
        (Node::Object(object), Value::String(key)) => object.set(&key.as_bytes(), value),
        (Node::Array(array), Value::Integer(_) | Value::Number(_)) => match position(key) {
            Some(index) => array.set(index, value),
            None => return Err("an index of an array is an integer from 1".to_owned()),
        },
        _ => return Err(misfit(node, key, "written")),
    };
    result.map_err(|problem| problem.to_string())
}

/// `nljson.find`: the value of a key of an object; a number is looked up as its text.
pub(super) fn find(lua: &Lua, node: &Node, key: &Value) -> mlua::Result<Option<Node>> {
    let Node::Object(object) = node else {
        return Ok(None);
    };
    let key = lua.coerce_string(key.clone())?;
    Ok(key.and_then(|key| object.get(&key.as_bytes())))
}

/// `nljson.erase`: a key of an object, or an index of an array, which counts from zero here.
pub(super) fn erase(node: &Node, key: &Value) -> bool {
    match (node, key) {
        (Node::Object(object), Value::String(key)) => object.erase(&key.as_bytes()),
        (Node::Array(array), Value::Integer(index)) => {
            usize::try_from(*index).is_ok_and(|index| array.erase(index))
        }
        _ => false,
    }
}

/// How much a container holds.
pub(super) fn count(node: &Node) -> usize {
    match node {
        Node::Array(array) => array.len(),
        Node::Object(object) => object.len(),
        Node::Null
        | Node::Boolean(_)
        | Node::Unsigned(_)
        | Node::Negative(_)
        | Node::Float(_)
        | Node::Text(_) => 0,
    }
}

/// The keys of an object, in order.
pub(super) fn keys(lua: &Lua, node: &Node) -> mlua::Result<Table> {
    let keys = lua.create_table_with_capacity(count(node), 0)?;
    if let Node::Object(object) = node {
        // One by one: references to strings are few, and an object may have more keys.
        object.try_each(|key, _| keys.raw_push(lua.create_string(key)?))?;
    }
    Ok(keys)
}

/// A value of a script as a node of its own. Numbers become floats, as in LAppS; what JSON has no
/// word for becomes null.
pub(super) fn from_lua(lua: &Lua, value: &Value, ledger: &Ledger) -> Result<Node, Problem> {
    node(lua, value, ledger, DEPTH_MAX)
}

fn node(lua: &Lua, value: &Value, ledger: &Ledger, depth: usize) -> Result<Node, Problem> {
    Ok(match value {
        Value::Boolean(flag) => Node::Boolean(*flag),
        Value::Integer(number) => Node::Float(*number as f64),
        Value::Number(number) => Node::Float(*number),
        Value::String(text) => Node::Text(text.as_bytes().to_vec().into()),
        Value::UserData(data) => match data.borrow::<Document>() {
            Ok(document) => document.0.copy(ledger)?,
            Err(_) => Node::Null,
        },
        Value::Table(table) => {
            let depth = depth.checked_sub(1).ok_or(Problem::TooDeep)?;
            return container(lua, table, ledger, depth);
        }
        Value::Nil
        | Value::LightUserData(_)
        | Value::Function(_)
        | Value::Thread(_)
        | Value::Error(_)
        | Value::Other(_) => Node::Null,
    })
}

/// A table whose keys are all indexes is an array, an empty one too; every other is an object.
fn container(lua: &Lua, table: &Table, ledger: &Ledger, depth: usize) -> Result<Node, Problem> {
    // One table may be in many places, each of which is copied.
    if watchdog::is_over() {
        return Err(Problem::Syntax("it took too long".to_owned()));
    }
    // The value is taken as a boolean because that makes no reference to it.
    let mut indexes = Some(Vec::new());
    each(table, |key, _: bool| {
        let index = position(&key);
        indexes = indexes.take().and_then(|mut all| {
            all.push(index?);
            Some(all)
        });
        Ok(())
    })?;
    let Some(mut indexes) = indexes else {
        let object = Object::new(ledger)?;
        each(table, |key, value: Value| {
            let key = key_text(lua, &key)?;
            object.set(&key.as_bytes(), node(lua, &value, ledger, depth)?)
        })?;
        return Ok(Node::Object(object));
    };
    indexes.sort_unstable();
    let array = Array::new(ledger)?;
    for index in indexes {
        let value = table.raw_get(index + 1);
        let value: Value = value.map_err(|error| Problem::Syntax(error.to_string()))?;
        array.set(index, node(lua, &value, ledger, depth)?)?;
    }
    Ok(Node::Array(array))
}

/// Each entry on its own: references to values of Lua are few, and a table may have more entries.
fn each<V: FromLua>(
    table: &Table,
    mut entry: impl FnMut(Value, V) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut problem = None;
    let listed = table.for_each(|key: Value, value: V| {
        entry(key, value).map_err(|refused| {
            problem = Some(refused);
            mlua::Error::runtime("")
        })
    });
    match (listed, problem) {
        (_, Some(problem)) => Err(problem),
        (Err(error), None) => Err(Problem::Syntax(error.to_string())),
        (Ok(()), None) => Ok(()),
    }
}

fn key_text(lua: &Lua, key: &Value) -> Result<LuaString, Problem> {
    let text = match key.as_boolean() {
        Some(flag) => lua.create_string(flag.to_string()).map(Some),
        None => lua.coerce_string(key.clone()),
    };
    let refused = || Problem::Syntax(format!("a {} cannot be a key", lua_type(key)));
    text.ok().flatten().ok_or_else(refused)
}

/// The place in an array that an index of Lua names; None if it is no integer from 1.
fn position(key: &Value) -> Option<usize> {
    usize::try_from(key.as_integer()?.checked_sub(1)?).ok()
}

fn misfit(node: &Node, key: &Value, done: &str) -> String {
    match node {
        Node::Object(_) => format!(
            "a key of an object must be a string to be {done}, not a {}; nljson.find takes a \
             number",
            lua_type(key)
        ),
        Node::Array(_) => unexpected("a number as index of an array", key),
        Node::Null
        | Node::Boolean(_)
        | Node::Unsigned(_)
        | Node::Negative(_)
        | Node::Float(_)
        | Node::Text(_) => format!("a {} has nothing in it to be {done}", node.type_name()),
    }
}
