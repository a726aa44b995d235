//! `bcast`: channels on which a service tells all that subscribe to them.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{Lua, Table, Value};

use crate::broker::Broker;
use crate::document::{Node, to_cbor};
use crate::instance::SharedTurn;
use crate::live::Handler;
use crate::modules::nljson;
use crate::modules::run_prelude;

/// Where the broadcasts of a service go.
pub(crate) enum Outlet {
    /// They are effects of the callback that runs.
    Turn(SharedTurn),
    /// They leave at once.
    Now(Box<dyn Broadcasts>),
}

/// Takes the broadcasts of a standalone service, as it runs.
pub trait Broadcasts {
    /// Sends `payload` as a binary message to all that subscribe to `channel`; or says why not. It
    /// may wait until there is room.
    fn broadcast(&self, channel: u64, payload: Vec<u8>) -> Result<(), String>;
}

/// The global `bcast`.
pub(crate) fn table(lua: &Lua, broker: &Arc<Broker>, outlet: Outlet) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let channels = Arc::clone(broker);
    let create = move |_: &Lua, channel: f64| {
        let channel = channel_number(channel);
        let created = channel.and_then(|channel| {
            let done = channels.create_channel(channel);
            done.then_some(())
                .ok_or_else(|| "there are too many channels".to_owned())
        });
        Ok(created.err())
    };
    host.raw_set("create", lua.create_function(create)?)?;
    let outlet = Rc::new(outlet);
    subscribing(lua, &host, broker, &outlet)?;
    let channels = Arc::clone(broker);
    let send = move |_: &Lua, (channel, message): (f64, Value)| {
        let sent = existing(&channels, channel).and_then(|channel| {
            let payload = nljson::with(&message, payload)??;
            outlet.broadcast(channel, payload)
        });
        Ok(sent.err())
    };
    host.raw_set("send", lua.create_function(send)?)?;
    run_prelude(lua, include_str!("../prelude/bcast.lua"), host)
}

fn subscribing(
    lua: &Lua,
    host: &Table,
    broker: &Arc<Broker>,
    outlet: &Rc<Outlet>,
) -> mlua::Result<()> {
    for (name, is_subscribe) in [("subscribe", true), ("unsubscribe", false)] {
        let (channels, outlet) = (Arc::clone(broker), Rc::clone(outlet));
        let change = move |_: &Lua, (channel, handler): (f64, f64)| {
            let changed = existing(&channels, channel)
                .and_then(|channel| outlet.change(channel, handler, is_subscribe));
            Ok(changed.err())
        };
        host.raw_set(name, lua.create_function(change)?)?;
    }
    Ok(())
}

impl Outlet {
    fn broadcast(&self, channel: u64, payload: Vec<u8>) -> Result<(), String> {
        match self {
            Self::Turn(turn) => {
                let turn = &mut *turn.borrow_mut();
                let full = turn.effects.broadcast(channel, &payload, turn.limits);
                full.map_err(|full| full.sentence().to_owned())
            }
            Self::Now(broadcasts) => broadcasts.broadcast(channel, payload),
        }
    }

    fn change(&self, channel: u64, handler: f64, is_subscribe: bool) -> Result<(), String> {
        let Self::Turn(turn) = self else {
            return Err("a standalone service has no connections".to_owned());
        };
        let turn = &mut *turn.borrow_mut();
        let handler = Handler::from_number(handler).filter(|&handler| turn.live.contains(handler));
        // Who has gone subscribes to nothing any more.
        let handler = match (handler, is_subscribe) {
            (Some(handler), _) => handler,
            (None, true) => return Err("no live connection has this handler".to_owned()),
            (None, false) => return Ok(()),
        };
        let full = match is_subscribe {
            true => turn.effects.subscribe(handler, channel, turn.limits),
            false => turn.effects.unsubscribe(handler, channel, turn.limits),
        };
        full.map_err(|full| full.sentence().to_owned())
    }
}

/// The bytes of a notification.
fn payload(message: &Node) -> Result<Vec<u8>, String> {
    let Node::Object(object) = message else {
        return Err("message must be an object".to_owned());
    };
    if object.get(b"cid").is_none_or(|cid| cid.as_f64().is_none()) {
        return Err("message.cid must be a number".to_owned());
    }
    if !matches!(object.get(b"message"), Some(Node::Array(_))) {
        return Err("message.message must be an array".to_owned());
    }
    to_cbor(message).map_err(|problem| problem.to_string())
}

fn existing(broker: &Broker, channel: f64) -> Result<u64, String> {
    let channel = channel_number(channel)?;
    let exists = broker.has_channel(channel);
    let missing = || format!("there is no channel {channel}; bcast:create({channel}) makes it");
    exists.then_some(channel).ok_or_else(missing)
}

fn channel_number(number: f64) -> Result<u64, String> {
    let fits = (0.0..=CHANNEL_MAX).contains(&number) && number.fract() == 0.0;
    let wrong = || "id must be an integer from 0".to_owned();
    fits.then_some(number as u64).ok_or_else(wrong)
}

/// What a number of Lua holds exactly.
const CHANNEL_MAX: f64 = 9_007_199_254_740_992.0;
