//! Connections that hear what others publish, and those that subscribe and do not read.

use moonwire_net::{Driver, Session, Time};
use moonwire_proto::Opcode;

use super::{SECOND_NS, Stage, Worker};
use crate::audience::{Hearing, SUBSCRIBE};
use crate::client::{Client, State, Upgrade};
use crate::plan::Plan;
use crate::schedule::{NEVER, duration_ns};

impl<D: Driver> Worker<D> {
    /// The handshake is over: asks for what is published, and counts as up when that is granted.
    pub(super) fn subscribe(&mut self, index: u32, upgrade: Upgrade) {
        let timeout_ns = duration_ns(self.plan.scenario.handshake_timeout);
        let client = &mut self.clients[index as usize];
        client.subscribing = Some(upgrade);
        if let Some(session) = &mut client.session {
            // An open session with nothing in its queue takes it.
            let _ = session.send(Opcode::Text, SUBSCRIBE);
        }
        let until = Time::from_nanos(self.now_ns.saturating_add(timeout_ns));
        self.timers.arm(index, Some(until));
    }

    /// It hears from now on what is published, or does not listen.
    pub(super) fn subscribed(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        let Some(upgrade) = client.subscribing.take() else {
            return;
        };
        let number = client.number;
        let socket = client.session.as_ref().map(Session::socket);
        self.upgraded(index, &upgrade);
        if let Some(socket) = socket.filter(|_| self.plan.is_silent(number)) {
            self.driver.pause_receive(socket);
        }
    }

    /// True of a connection that was up, does not read, and was not closed by this end.
    pub(super) fn is_silent_and_up(&self, index: u32) -> bool {
        let client = &self.clients[index as usize];
        let is_up = client.state == State::Up && self.stage < Stage::Closing;
        is_up && self.plan.is_silent(client.number)
    }

    /// True when those that did not read have had the time to read that the server has ended them.
    /// To be asked once nothing more is awaited from the others.
    pub(super) fn has_looked_around(&mut self) -> bool {
        let is_open = |client: &Client| client.session.is_some();
        let is_silent = |client: &Client| self.plan.is_silent(client.number);
        let has_silent = self.clients.iter().any(|it| is_silent(it) && is_open(it));
        if has_silent && self.silence_end_ns == 0 {
            self.silence_end_ns = self.now_ns + SECOND_NS;
            self.resume_silent();
        }
        !has_silent || self.now_ns >= self.silence_end_ns
    }

    /// Lets those read that did not.
    pub(super) fn resume_silent(&mut self) {
        for client in &self.clients {
            if let Some(session) = &client.session
                && self.plan.is_silent(client.number)
            {
                self.driver.resume_receive(session.socket());
            }
        }
    }

    /// True when its listeners have heard all that there is, and nothing more is coming.
    pub(super) fn has_heard_all(&self) -> bool {
        let Some(programme) = &self.plan.programme else {
            return true;
        };
        let published = programme.published();
        published.is_some_and(|published| self.desk.heard >= published * self.listeners())
    }

    /// When it looks again whether others still publish, who do not wake it.
    pub(super) fn next_look_ns(&self) -> u64 {
        match self.plan.programme {
            Some(_) => self.now_ns + LOOK_NS,
            None => NEVER,
        }
    }

    /// Messages that each of its listeners has heard.
    pub(super) fn heard_each(&self) -> Vec<u64> {
        if self.plan.programme.is_none() {
            return Vec::new();
        }
        let listeners = self.clients.iter();
        let listeners = listeners.filter(|client| !self.plan.is_silent(client.number));
        let heard = |client: &Client| client.track.hearings.iter().map(Hearing::heard).sum();
        listeners.map(heard).collect()
    }

    fn listeners(&self) -> u64 {
        let clients = self.clients.iter();
        let listeners = clients.filter(|client| !self.plan.is_silent(client.number));
        listeners.count() as u64
    }
}

/// Gives each listener a place for every publisher.
pub(super) fn with_hearings(mut clients: Vec<Client>, plan: &Plan) -> Vec<Client> {
    if plan.programme.is_some() {
        let publishers = plan.scenario.senders() as usize;
        for client in clients
            .iter_mut()
            .filter(|client| !plan.is_silent(client.number))
        {
            client.track.hearings = vec![Hearing::default(); publishers].into();
        }
    }
    clients
}

const LOOK_NS: u64 = SECOND_NS / 100;
