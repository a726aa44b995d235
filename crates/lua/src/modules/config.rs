//! `moonwire.config`: the service's own settings.

use mlua::{FromLua, Lua, Table, Value};
use serde_json::Value as Json;

use crate::modules::run_prelude;

/// The settings as a table that takes no new fields. It is an ordinary table, so that `pairs`,
/// `ipairs` and `#` work; each instance has its own, so a change reaches nobody else.
pub(crate) fn table(lua: &Lua, config: &Json) -> mlua::Result<Table> {
    let sealed: Table = run_prelude(lua, include_str!("../prelude/config.lua"), ())?;
    let empty = Json::Object(serde_json::Map::new());
    let config = if config.is_null() { &empty } else { config };
    Table::from_lua(value(lua, config, &sealed)?, lua)
}

fn value(lua: &Lua, json: &Json, sealed: &Table) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Boolean(*flag),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.iter().enumerate() {
                table.raw_set(index + 1, value(lua, item, sealed)?)?;
            }
            table.set_metatable(Some(sealed.clone()))?;
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(name.as_str(), value(lua, field, sealed)?)?;
            }
            table.set_metatable(Some(sealed.clone()))?;
            Value::Table(table)
        }
    })
}
