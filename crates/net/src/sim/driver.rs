//! The driver of the simulated world.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Handle;
use super::world::{Arrival, DriverState, SimListener, World};
use crate::buffer::ReceiveBuffer;
use crate::driver::{
    Completion, ConnectTarget, Driver, ListenerId, SocketId, Submission, Transport, TransportKind,
    Waker, WakerKind,
};
use crate::time::Time;

/// A driver without sockets, made by [`super::SimNetwork::driver`].
#[derive(Debug)]
pub struct SimDriver {
    world: Rc<RefCell<World>>,
    /// Its place in the world's list.
    index: usize,
    completions: VecDeque<Completion>,
    /// Ends to look at in this turn.
    turn: Vec<usize>,
}

impl SimDriver {
    pub(super) fn new(world: &Rc<RefCell<World>>) -> Self {
        let mut inner = world.borrow_mut();
        inner.drivers.push(DriverState {
            wake_at: Time::MAX,
            ..DriverState::default()
        });
        let index = inner.drivers.len() - 1;
        Self {
            world: Rc::clone(world),
            index,
            completions: VecDeque::new(),
            turn: Vec::new(),
        }
    }

    /// Does what one end has to do.
    fn serve(&mut self, end: usize) {
        let mut world = self.world.borrow_mut();
        let Some((_, socket)) = world.ends[end].owner.filter(|owner| owner.0 == self.index) else {
            return;
        };
        if world.ends[end].sending.is_some() && world.write(end) {
            let sent = Completion::Sent {
                socket,
                buffer: Vec::new(),
                result: Ok(()),
            };
            self.completions.push_back(sent);
        }
        let Some(arrival) = world.arrival(end) else {
            return;
        };
        if matches!(arrival, Arrival::Reset) && world.ends[end].sending.take().is_some() {
            let result = Err(io::ErrorKind::BrokenPipe.into());
            self.completions.push_back(Completion::Sent {
                socket,
                buffer: Vec::new(),
                result,
            });
        }
        self.completions.push_back(match arrival {
            Arrival::Connected(result) => Completion::Connected { socket, result },
            Arrival::Bytes(bytes) => {
                let filled = bytes.len();
                let buffer = ReceiveBuffer::owned(bytes.into(), filled);
                Completion::Received { socket, buffer }
            }
            Arrival::EndOfStream => Completion::EndOfStream { socket },
            Arrival::Reset => Completion::Failed {
                socket,
                error: io::ErrorKind::ConnectionReset.into(),
            },
        });
    }

    fn accept(&mut self) {
        let mut world = self.world.borrow_mut();
        for index in 0..world.listeners.len() {
            let now = world.now;
            let listener = &mut world.listeners[index];
            let is_accepting = listener.is_open && !listener.is_held;
            if listener.driver != self.index || !is_accepting {
                continue;
            }
            let id = listener.id;
            while let Some((_, end)) = world.listeners[index].backlog.pop_front_if(|w| w.0 <= now) {
                let socket = world.own(end, self.index);
                let peer = world.ends[end].addr;
                let accepted = Completion::Accepted {
                    listener: id,
                    socket,
                    peer,
                };
                self.completions.push_back(accepted);
            }
        }
    }

    fn hold_listener(&mut self, id: ListenerId, is_held: bool) {
        if let Some(listener) = self.world.borrow_mut().listeners.get_mut(id.0 as usize) {
            listener.is_held = is_held;
        }
    }

    /// The end under this id, and the world.
    fn with<R>(&self, id: SocketId, act: impl FnOnce(&mut World, usize) -> R) -> Option<R> {
        let mut world = self.world.borrow_mut();
        let end = world.end(self.index, id)?;
        Some(act(&mut world, end))
    }

    fn is_current(&self, completion: &Completion) -> bool {
        match completion {
            Completion::Connected { socket, .. }
            | Completion::Received { socket, .. }
            | Completion::EndOfStream { socket }
            | Completion::Failed { socket, .. }
            | Completion::Blocked { socket, .. }
            | Completion::Sent { socket, .. } => self.with(*socket, |_, _| ()).is_some(),
            Completion::Accepted { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Detached { .. }
            | Completion::Woken => true,
        }
    }
}

impl Driver for SimDriver {
    fn now(&self) -> Time {
        self.world.borrow().now
    }

    fn listen(&mut self, listener: Transport) -> io::Result<ListenerId> {
        let TransportKind::Simulated(Handle::Listener(addr)) = listener.kind else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut world = self.world.borrow_mut();
        let id = ListenerId(u32::try_from(world.listeners.len()).expect("a test has few of them"));
        let (driver, backlog) = (self.index, VecDeque::new());
        world.listeners.push(SimListener {
            addr,
            driver,
            id,
            is_open: true,
            is_held: false,
            backlog,
        });
        Ok(id)
    }

    fn pause_accept(&mut self, listener: ListenerId) {
        self.hold_listener(listener, true);
    }

    fn resume_accept(&mut self, listener: ListenerId) {
        self.hold_listener(listener, false);
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        let mut world = self.world.borrow_mut();
        let Some(listener) = world.listeners.get_mut(listener.0 as usize) else {
            return;
        };
        listener.is_open = false;
        for (at, end) in std::mem::take(&mut listener.backlog) {
            let peer = world.ends[end].peer;
            world.reset(peer, at);
        }
    }

    fn connect(&mut self, target: &ConnectTarget) -> io::Result<SocketId> {
        let mut world = self.world.borrow_mut();
        let count = world.ends.len();
        let source = target.source.unwrap_or_else(|| [127, 0, 0, 1].into());
        let addr = SocketAddr::new(source, u16::try_from(count % 60_000).unwrap_or(0) + 1024);
        let client = world.add_end(count + 1, target.remote);
        let server = world.add_end(client, addr);
        let arrival = world.now + world.delay();
        let answer = arrival + world.delay();
        let open = world.listeners.iter().enumerate();
        let open = open.filter(|(_, listener)| listener.is_open && listener.addr == target.remote);
        let open: Vec<usize> = open.map(|(index, _)| index).collect();
        let is_connected = !open.is_empty();
        if is_connected {
            let chosen = open[world.rng.usize(..open.len())];
            world.listeners[chosen].backlog.push_back((arrival, server));
            let backlog = &mut world.listeners[chosen].backlog;
            backlog.make_contiguous().sort_by_key(|waiting| waiting.0);
        }
        world.ends[client].connecting =
            Some((answer, io::ErrorKind::ConnectionRefused, is_connected));
        Ok(world.own(client, self.index))
    }

    fn attach(&mut self, transport: Transport) -> io::Result<SocketId> {
        let TransportKind::Simulated(Handle::End(end)) = transport.kind else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(self.world.borrow_mut().own(end, self.index))
    }

    fn detach(&mut self, socket: SocketId) {
        let detached = self.with(socket, |world, end| {
            let end_state = &mut world.ends[end];
            end_state.owner = None;
            end_state.is_paused = false;
            let unsent = end_state.sending.take();
            let unsent = unsent
                .map(|(buffer, sent)| buffer[sent..].to_vec())
                .unwrap_or_default();
            let transport = Transport {
                kind: TransportKind::Simulated(Handle::End(end)),
            };
            Completion::Detached {
                socket,
                transport,
                unsent,
            }
        });
        self.completions.extend(detached);
    }

    fn send(&mut self, socket: SocketId, buffer: Vec<u8>) -> Submission {
        let is_done = self.with(socket, |world, end| {
            assert!(
                world.ends[end].sending.is_none(),
                "a socket has at most one send in flight"
            );
            world.ends[end].sending = Some((buffer, 0));
            world.write(end)
        });
        if is_done.unwrap_or(true) {
            Submission::Done(Vec::new())
        } else {
            Submission::InFlight
        }
    }

    fn untaken_bytes(&self, socket: SocketId) -> usize {
        let untaken = |world: &mut World, end: usize| {
            let sending = world.ends[end].sending.as_ref();
            sending.map_or(0, |(buffer, sent)| buffer.len() - sent)
        };
        self.with(socket, untaken).unwrap_or(0)
    }

    fn pause_receive(&mut self, socket: SocketId) {
        self.with(socket, |world, end| world.ends[end].is_paused = true);
    }

    fn resume_receive(&mut self, socket: SocketId) {
        self.with(socket, |world, end| world.ends[end].is_paused = false);
    }

    fn shutdown(&mut self, socket: SocketId) {
        self.with(socket, World::finish);
    }

    fn close(&mut self, socket: SocketId) {
        self.with(socket, |world, end| world.close(end, false));
    }

    fn abort(&mut self, socket: SocketId) {
        self.with(socket, |world, end| world.close(end, true));
    }

    fn wait(&mut self, until: Option<Time>) -> io::Result<()> {
        let mut world = self.world.borrow_mut();
        let state = &mut world.drivers[self.index];
        state.wake_at = until.unwrap_or(Time::MAX);
        if state.woken.swap(false, Ordering::AcqRel) {
            self.completions.push_back(Completion::Woken);
        }
        let ends = world.ends.iter().enumerate();
        let owned = ends.filter(|(_, end)| end.owner.is_some_and(|owner| owner.0 == self.index));
        self.turn = owned.map(|(index, _)| index).collect();
        world.rng.shuffle(&mut self.turn);
        drop(world);
        self.accept();
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        loop {
            while let Some(completion) = self.completions.pop_front() {
                if self.is_current(&completion) {
                    return Some(completion);
                }
            }
            let end = self.turn.pop()?;
            self.serve(end);
        }
    }

    fn recycle(&mut self, buffer: ReceiveBuffer) {
        drop(buffer);
    }

    fn waker(&self) -> Waker {
        let world = self.world.borrow();
        Waker {
            kind: WakerKind::Flag(Arc::clone(&world.drivers[self.index].woken)),
        }
    }
}
