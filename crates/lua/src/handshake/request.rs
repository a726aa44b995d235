//! The request as a table.

use std::collections::HashSet;
use std::net::SocketAddr;

use mlua::{Lua, Table};
use moonwire_proto::{Request, is_token};

use super::cookies::cookies;

/// What `onHandshake` is given.
pub(crate) fn table(lua: &Lua, request: &Request, peer: SocketAddr) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 8)?;
    table.raw_set("target", request.target())?;
    table.raw_set("path", request.path())?;
    table.raw_set("query", request.query())?;
    table.raw_set("headers", headers(lua, request)?)?;
    table.raw_set("cookies", cookie_table(lua, request)?)?;
    // What is no token cannot be chosen (RFC 6455, 4.1).
    let offers = request.subprotocols().filter(|offer| is_token(offer));
    table.raw_set("subprotocols", lua.create_sequence_from(offers)?)?;
    table.raw_set("remote_address", peer.ip().to_canonical().to_string())?;
    table.raw_set("remote_port", peer.port())?;
    Ok(table)
}

/// By their names in lower case; the values of one name as one (RFC 9110, 5.3; RFC 9113, 8.2.3).
fn headers(lua: &Lua, request: &Request) -> mlua::Result<Table> {
    let fields = lua.create_table()?;
    let mut names = HashSet::new();
    for (name, _) in request.headers().iter() {
        let name = name.to_ascii_lowercase();
        if names.contains(&name) {
            continue;
        }
        let separator = if name == COOKIE { "; " } else { ", " };
        let values: Vec<&str> = request.headers().all(&name).collect();
        fields.raw_set(&*name, values.join(separator))?;
        names.insert(name);
    }
    Ok(fields)
}

/// Of several of one name the first, whose path is the longest (RFC 6265, 5.4).
fn cookie_table(lua: &Lua, request: &Request) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in request.headers().all(COOKIE).flat_map(cookies) {
        if !table.contains_key(name)? {
            table.raw_set(name, value)?;
        }
    }
    Ok(table)
}

const COOKIE: &str = "cookie";
