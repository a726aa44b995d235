//! `ws:send` and `ws:close`: they leave effects for the server, nothing happens at once.

use std::rc::Rc;

use mlua::{Lua, LuaString, Table, Value};
use moonwire_proto::Opcode;

use crate::document::to_cbor;
use crate::effects::Full;
use crate::instance::{SharedTurn, Turn};
use crate::lapps;
use crate::live::Handler;
use crate::modules::{nljson, run_prelude};

/// The global `ws`.
pub(crate) fn table(lua: &Lua, turn: &SharedTurn) -> mlua::Result<Table> {
    let shared = Rc::clone(turn);
    let send = lua.create_function(
        move |_, (handler, opcode, data): (f64, u8, LuaString)| -> mlua::Result<Option<&str>> {
            Ok(send(&mut shared.borrow_mut(), handler, opcode, &data.as_bytes()).err())
        },
    )?;
    let shared = Rc::clone(turn);
    let send_document = lua.create_function(
        move |_, (handler, document): (f64, Value)| -> mlua::Result<Option<String>> {
            Ok(send_document(&mut shared.borrow_mut(), handler, &document).err())
        },
    )?;
    let shared = Rc::clone(turn);
    let close = lua.create_function(
        move |_, (handler, code, reason): (f64, f64, LuaString)| -> mlua::Result<Option<&str>> {
            Ok(close(&mut shared.borrow_mut(), handler, code, &reason.as_bytes()).err())
        },
    )?;
    let functions = (send, send_document, close);
    run_prelude(lua, include_str!("../prelude/ws.lua"), functions)
}

fn send(turn: &mut Turn, handler: f64, opcode: u8, data: &[u8]) -> Result<(), &'static str> {
    let handler = live_handler(turn, handler).inspect_err(|_| turn.effects.refuse_dead())?;
    let opcode = Opcode::from_u8(opcode).ok_or("opcode must be 1 (text) or 2 (binary)")?;
    // A peer must fail the connection on text that is not UTF-8 (RFC 6455, 8.1), so the mistake
    // would surface far from its cause, as a client that went away.
    if opcode == Opcode::Text && simdutf8::basic::from_utf8(data).is_err() {
        return Err("data of a text message must be UTF-8, send it with opcode 2 (binary)");
    }
    turn.effects
        .send(handler, opcode, data, turn.limits)
        .map_err(Full::sentence)
}

/// A message of the LAppS protocol, in CBOR.
fn send_document(turn: &mut Turn, handler: f64, document: &Value) -> Result<(), String> {
    let bytes = nljson::with(document, |node| {
        lapps::check_outbound(node)?;
        to_cbor(node).map_err(|problem| problem.to_string())
    })??;
    Ok(send(turn, handler, Opcode::Binary.as_u8(), &bytes)?)
}

fn close(turn: &mut Turn, handler: f64, code: f64, reason: &[u8]) -> Result<(), &'static str> {
    let handler = live_handler(turn, handler)?;
    let code = close_code(code).ok_or("code must be 1000-1003, 1007-1011 or 3000-4999")?;
    if reason.len() > CLOSE_REASON_BYTES_MAX {
        return Err("reason must have at most 123 bytes");
    }
    let reason = simdutf8::basic::from_utf8(reason).map_err(|_| "reason must be UTF-8")?;
    turn.effects
        .close(handler, code, reason, turn.limits)
        .map_err(Full::sentence)
}

fn live_handler(turn: &Turn, handler: f64) -> Result<Handler, &'static str> {
    let handler = Handler::from_number(handler).filter(|&handler| turn.live.contains(handler));
    handler.ok_or("no live connection has this handler")
}

/// Codes that a service may give (RFC 6455, 7.4): those of LAppS. The later ones of the registry,
/// 1012 to 1014, are the server's own.
fn close_code(code: f64) -> Option<u16> {
    let fits = (1000.0..5000.0).contains(&code) && code.fract() == 0.0;
    let code = fits.then_some(code as u16)?;
    matches!(code, 1000..=1003 | 1007..=1011 | 3000..=4999).then_some(code)
}

/// What is left of a control frame's 125 bytes behind the code (RFC 6455, 5.5).
pub(crate) const CLOSE_REASON_BYTES_MAX: usize = 123;
