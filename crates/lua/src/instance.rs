//! One virtual machine that runs one service.

use std::cell::RefCell;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;

use mlua::{Error, Function, Lua, Value};
use moonwire_proto::{Opcode, Request};

use crate::document::{self, Ledger, Problem};
use crate::effects::{EffectLimits, Effects};
use crate::error::ScriptError;
use crate::handshake::{self, HandshakeAnswer};
use crate::lapps;
use crate::live::{Handler, Live};
use crate::loaded::Loaded;
use crate::modules::{self, CLOSE_REASON_BYTES_MAX, Role};
use crate::source::{LoadOptions, Protocol, ServiceSource};

/// One instance of a service: a virtual machine of its own that shares nothing with others.
///
/// It stays on the thread that loaded it. Every call clears the effects it is given, runs one
/// callback to its end and leaves there what the callback asked for, also when the callback failed
/// later on: those effects come before the failure.
pub struct Instance {
    loaded: Loaded,
    callbacks: Callbacks,
    turn: SharedTurn,
    protocol: Protocol,
    is_handshake_hook_on: bool,
    has_handshake: bool,
}

/// What the server does with the connection after a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The callback returned `true`.
    Continue,
    /// The callback returned anything else: close this connection. The instance goes on.
    Stop,
    /// The message is none of the service's protocol and did not reach it: close this connection.
    Refused(Refusal),
}

/// What the client of a refused message is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the close frame: 1002, 1003, 1007 or 1009 (RFC 6455, 7.4.1).
    pub code: u16,
    /// At most 123 bytes.
    pub reason: String,
}

impl Outcome {
    fn returned(goes_on: bool) -> Self {
        if goes_on { Self::Continue } else { Self::Stop }
    }

    fn refused(code: u16, reason: &str) -> Self {
        let end = reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX);
        Self::Refused(Refusal {
            code,
            reason: reason[..end].to_owned(),
        })
    }
}

impl Instance {
    /// Loads a service without limits of its own; see [`Instance::load_with`].
    pub fn load(source: &ServiceSource) -> Result<Self, ScriptError> {
        Self::load_with(source, &LoadOptions::default())
    }

    /// Makes a virtual machine and runs the service's file in it. The file's value must be a table
    /// with the functions `onStart`, `onMessage`, `onDisconnect` and `onShutdown`; it becomes the
    /// global with the service's name. No callback runs yet.
    pub fn load_with(source: &ServiceSource, options: &LoadOptions) -> Result<Self, ScriptError> {
        let turn = SharedTurn::default();
        turn.borrow_mut().limits = options.effects;
        let role = Role::Reactive {
            turn: Rc::clone(&turn),
        };
        let loaded = Loaded::prepare(source, options, role)?;
        let callbacks = Callbacks::create(&loaded.lua, &source.name)
            .map_err(|error| loaded.unprepared(&error))?;
        loaded.run_file(&CALLBACKS)?;
        let mut instance = Self {
            is_handshake_hook_on: !options.is_handshake_hook_off,
            has_handshake: false,
            loaded,
            callbacks,
            turn,
            protocol: source.protocol,
        };
        instance.has_handshake = instance.look_for_handshake()?;
        Ok(instance)
    }

    /// Runs `onStart`. To be called once, before any message.
    pub fn start(&mut self, effects: &mut Effects) -> Result<(), ScriptError> {
        let turn = TurnGuard::begin(&self.turn, effects);
        let start = || self.callbacks.start.call::<()>(());
        let result = self.loaded.call("onStart", start);
        drop(turn);
        result?;
        // `onStart` may have made it.
        self.has_handshake = self.look_for_handshake()?;
        Ok(())
    }

    fn look_for_handshake(&self) -> Result<bool, ScriptError> {
        Ok(self.is_handshake_hook_on && self.loaded.has_callback(ON_HANDSHAKE)?)
    }

    /// Whether the service answers handshakes itself, as seen when it was loaded and after
    /// `onStart`.
    pub fn has_handshake(&self) -> bool {
        self.has_handshake
    }

    /// Runs `onHandshake` with the request of a connection from `peer`, which the service does not
    /// know of yet. To be called only if it [has](Self::has_handshake) that.
    pub fn handshake(
        &mut self,
        request: &Request,
        peer: SocketAddr,
        effects: &mut Effects,
    ) -> Result<HandshakeAnswer, ScriptError> {
        let turn = TurnGuard::begin(&self.turn, effects);
        let result = self.loaded.call(ON_HANDSHAKE, || {
            let lua = &self.loaded.lua;
            // A full machine gets one collection and one more try.
            let table = handshake::table(lua, request, peer).or_else(|_| {
                lua.gc_collect()?;
                handshake::table(lua, request, peer)
            });
            let Ok(table) = table else {
                return Ok(HandshakeAnswer::DoesNotFit);
            };
            let (answer, more): (Value, Value) = self.callbacks.handshake.call(table)?;
            handshake::read(&answer, &more, request).map_err(Error::runtime)
        });
        drop(turn);
        result
    }

    /// Runs `onMessage` with one message. A text payload must be valid UTF-8. What is not a message
    /// of the service's protocol does not reach it.
    pub fn message(
        &mut self,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
        effects: &mut Effects,
    ) -> Result<Outcome, ScriptError> {
        let turn = TurnGuard::begin(&self.turn, effects);
        turn.shared.borrow_mut().live.insert(handler);
        let result = self.loaded.call("onMessage", || match self.protocol {
            Protocol::Raw => self.raw_message(handler, opcode, payload),
            Protocol::Lapps => self.lapps_message(handler, opcode, payload),
        });
        drop(turn);
        result
    }

    fn raw_message(
        &self,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
    ) -> mlua::Result<Outcome> {
        let Ok(message) = self.loaded.string(payload) else {
            return Ok(Outcome::refused(1009, DOES_NOT_FIT));
        };
        let arguments = (handler.to_number(), opcode.as_u8(), message);
        self.callbacks
            .message
            .call(arguments)
            .map(Outcome::returned)
    }

    fn lapps_message(
        &self,
        handler: Handler,
        opcode: Opcode,
        payload: &[u8],
    ) -> mlua::Result<Outcome> {
        if opcode == Opcode::Text {
            return Ok(Outcome::refused(1003, "the LAppS protocol is binary"));
        }
        let read = |ledger: &Ledger| document::from_cbor(payload, ledger);
        let message = match self.loaded.documents.make(&self.loaded.lua, read)? {
            Ok(message) => message,
            Err(Problem::Full | Problem::OutOfProportion) => {
                return Ok(Outcome::refused(1009, DOES_NOT_FIT));
            }
            Err(problem) => return Ok(Outcome::refused(1007, &format!("no CBOR: {problem}"))),
        };
        let kind = match lapps::classify(&message) {
            Ok(kind) => kind,
            Err(reason) => return Ok(Outcome::refused(1002, reason)),
        };
        let message = self.loaded.documents.handle(&self.loaded.lua, message)?;
        let arguments = (handler.to_number(), kind as u8, message);
        self.callbacks
            .message
            .call(arguments)
            .map(Outcome::returned)
    }

    /// Runs `onDisconnect`. To be called once for every connection, before its handler is given to
    /// another; from here on nothing can be sent to it.
    pub fn disconnect(
        &mut self,
        handler: Handler,
        effects: &mut Effects,
    ) -> Result<(), ScriptError> {
        let turn = TurnGuard::begin(&self.turn, effects);
        turn.shared.borrow_mut().live.remove(handler);
        let disconnect = || self.callbacks.disconnect.call::<()>(handler.to_number());
        let result = self.loaded.call("onDisconnect", disconnect);
        drop(turn);
        result
    }

    /// Runs `onShutdown`. To be called once, last.
    pub fn shutdown(&mut self, effects: &mut Effects) -> Result<(), ScriptError> {
        let turn = TurnGuard::begin(&self.turn, effects);
        let shutdown = || self.callbacks.shutdown.call::<()>(());
        let result = self.loaded.call("onShutdown", shutdown);
        drop(turn);
        result
    }

    /// The service's name.
    pub fn name(&self) -> &str {
        self.loaded.name()
    }

    /// Bytes that the virtual machine and its documents hold now, garbage included.
    pub fn memory_bytes(&self) -> usize {
        self.loaded.memory_bytes()
    }
}

/// The ways into the service (prelude/callbacks.lua).
struct Callbacks {
    message: Function,
    disconnect: Function,
    start: Function,
    shutdown: Function,
    handshake: Function,
}

impl Callbacks {
    fn create(lua: &Lua, service: &str) -> mlua::Result<Self> {
        let code = include_str!("prelude/callbacks.lua");
        let (message, disconnect, start, shutdown, handshake) =
            modules::run_prelude(lua, code, service)?;
        Ok(Self {
            message,
            disconnect,
            start,
            shutdown,
            handshake,
        })
    }
}

/// What the functions of `ws` work on.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) live: Live,
    /// The caller's effects while a callback runs, else unused ones.
    pub(crate) effects: Effects,
    pub(crate) limits: EffectLimits,
}

/// Shared between an instance and the functions in its machine; all on one thread, and borrowed
/// only where no Lua code can run.
pub(crate) type SharedTurn = Rc<RefCell<Turn>>;

/// Lends the caller's effects to the machine for one callback, and returns them however it ends.
struct TurnGuard<'a> {
    shared: &'a SharedTurn,
    effects: &'a mut Effects,
}

impl<'a> TurnGuard<'a> {
    fn begin(shared: &'a SharedTurn, effects: &'a mut Effects) -> Self {
        effects.clear();
        mem::swap(&mut shared.borrow_mut().effects, effects);
        Self { shared, effects }
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        mem::swap(&mut self.shared.borrow_mut().effects, self.effects);
    }
}

/// What a client is told whose message would take the rest of the memory: it is no failure of the
/// service, which goes on.
const DOES_NOT_FIT: &str = "the message does not fit the memory of the service";

/// The function that a reactive service may have besides.
const ON_HANDSHAKE: &str = "onHandshake";

/// The functions that every reactive service must have.
const CALLBACKS: [&str; 4] = ["onStart", "onMessage", "onDisconnect", "onShutdown"];
