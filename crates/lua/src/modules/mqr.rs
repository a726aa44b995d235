//! `mqr`: queues between services, by name.

use std::sync::Arc;

use mlua::{AnyUserData, Lua, LuaString, Table, Value};

use crate::broker::{Broker, Posting, Queue, StopFlag};
use crate::document::Parcel;
use crate::modules::nljson::{self, Documents};
use crate::modules::run_prelude;
use crate::watchdog;

/// A queue as a script holds it.
struct QueueHandle(Arc<Queue>);

/// What a post does at a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtBound {
    /// It waits: its caller has a thread of its own.
    Wait,
    /// It fails.
    Refuse,
}

/// The module.
pub(crate) fn module(
    lua: &Lua,
    broker: &Arc<Broker>,
    stop: &StopFlag,
    documents: &Documents,
    at_bound: AtBound,
) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let queues = Arc::clone(broker);
    let create = move |lua: &Lua, name: LuaString| {
        let queue = queues.queue(&name.as_bytes());
        queue
            .map(|queue| lua.create_any_userdata(QueueHandle(queue)))
            .transpose()
    };
    host.raw_set("create", lua.create_function(create)?)?;
    posting(lua, &host, stop.clone(), at_bound)?;
    receiving(lua, &host, stop, documents)?;
    let code = include_str!("../prelude/mqr.lua");
    let (module, methods): (Table, Table) = run_prelude(lua, code, host)?;
    lua.register_userdata_type::<QueueHandle>(|registry| {
        use mlua::UserDataFields;
        registry.add_meta_field("__index", methods);
    })?;
    // As in `nljson`: its metatable is made while there is memory.
    drop(lua.create_any_userdata(QueueHandle(Arc::new(Queue::new(1))))?);
    Ok(module)
}

fn posting(lua: &Lua, host: &Table, stop: StopFlag, at_bound: AtBound) -> mlua::Result<()> {
    let post = move |_: &Lua, (queue, message): (Value, Value)| {
        let posted = queue_of(&queue).and_then(|queue| {
            let parcel = nljson::with(&message, Parcel::pack)?;
            let parcel = parcel.map_err(|problem| problem.to_string())?;
            let posting = match at_bound {
                AtBound::Wait => watchdog::outside(|| queue.post(parcel, &stop)),
                AtBound::Refuse => queue.try_post(parcel),
            };
            match posting {
                Posting::Done => Ok(()),
                Posting::Full => Err("the queue is full".to_owned()),
                Posting::Stopped => Err("the queue is full, and the service must stop".to_owned()),
            }
        });
        Ok(posted.err())
    };
    host.raw_set("post", lua.create_function(post)?)
}

fn receiving(lua: &Lua, host: &Table, stop: &StopFlag, documents: &Documents) -> mlua::Result<()> {
    for (name, waits) in [("recv", true), ("try_recv", false)] {
        let (stop, documents) = (stop.clone(), documents.clone());
        let receive = move |lua: &Lua, queue: Value| {
            let queue = match queue_of(&queue) {
                Ok(queue) => queue,
                Err(problem) => return Ok((None, Some(problem))),
            };
            let parcel = match waits {
                true => watchdog::outside(|| queue.receive(&stop)),
                false => queue.try_receive(),
            };
            let Some(parcel) = parcel else {
                return Ok((None, None));
            };
            match documents.make(lua, |ledger| parcel.unpack(ledger))? {
                Ok(node) => Ok((Some(documents.handle(lua, node)?), None)),
                Err(problem) => Ok((None::<AnyUserData>, Some(problem.to_string()))),
            }
        };
        host.raw_set(name, lua.create_function(receive)?)?;
    }
    Ok(())
}

/// The queue behind the first argument, which a colon puts there.
fn queue_of(value: &Value) -> Result<Arc<Queue>, String> {
    let handle = value
        .as_userdata()
        .and_then(|data| data.borrow::<QueueHandle>().ok());
    let wrong = || "call it with a colon on what mqr.create returned".to_owned();
    handle.map(|handle| Arc::clone(&handle.0)).ok_or_else(wrong)
}
