//! `moonwire.connection`: what the server knows of a connection of this instance.

use std::rc::Rc;
use std::sync::Arc;

use mlua::{Lua, Table};

use crate::instance::SharedTurn;
use crate::live::Handler;
use crate::round_trips::RoundTrips;

/// The module. Of connections of other instances, and of those that are gone, it knows nothing.
pub(crate) fn module(
    lua: &Lua,
    turn: &SharedTurn,
    round_trips: Option<Arc<dyn RoundTrips>>,
) -> mlua::Result<Table> {
    let connection = lua.create_table_with_capacity(0, 1)?;
    let shared = Rc::clone(turn);
    let rtt_us = lua.create_function(move |_, handler: f64| {
        let handler = Handler::from_number(handler);
        let live = handler.filter(|&handler| shared.borrow().live.contains(handler));
        let found = live.zip(round_trips.as_ref());
        let found = found.and_then(|(handler, known)| known.round_trip(handler));
        Ok((
            found.map(|trip| f64::from(trip.smoothed_us)),
            found.map(|trip| f64::from(trip.last_us)),
        ))
    })?;
    connection.raw_set("rtt_us", rtt_us)?;
    Ok(connection)
}
