//! Which worker takes a connection: the one with the least to do, of those that own an instance of
//! its service.
//!
//! The weight of a worker is that of LAppS: (connections + those on their way to it) times
//! `connection_weight`, and the events that wait there. The counters of other workers are those of
//! their last turn.

use moonwire_lua::Effects;
use moonwire_net::{Driver, SocketId};

use super::Desk;
use super::connections::Stage;
use super::scripts::Scripts;
use crate::shared::Shared;

impl Desk {
    /// Accepts a connection for an instance here, or sends it to another worker that has fewer.
    pub(super) fn place(
        &mut self,
        socket: SocketId,
        service: u16,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
    ) {
        let others = self.owners_by_weight(service);
        let is_here = scripts.has(service);
        if is_here && !self.is_outweighed(&others) {
            if let Some(place) = scripts.choose(service) {
                self.admit(socket, place, scripts, effects, driver);
            }
            return;
        }
        let own = weight(&self.shared, self.worker);
        let owner = others
            .into_iter()
            .filter(|(weight, _)| !is_here || *weight < own)
            .find(|(_, owner)| self.shared.mailboxes[*owner].reserve());
        match owner {
            Some((_, worker)) => {
                let leaving = Stage::Leaving { worker, service };
                if self.connections.change(socket, leaving).is_some() {
                    driver.detach(socket);
                }
            }
            // The lighter ones have no room for it, but this one has an instance.
            None if is_here => {
                if let Some(place) = scripts.choose(service) {
                    self.admit(socket, place, scripts, effects, driver);
                }
            }
            None => self.refuse_busy(socket),
        }
    }

    /// The other owners with their weights, the lightest first; equal ones in turn.
    fn owners_by_weight(&mut self, service: u16) -> Vec<(f64, usize)> {
        let owners = &self.shared.owners[usize::from(service)];
        let turn = self.rotation;
        self.rotation = self.rotation.wrapping_add(1);
        let mut others: Vec<_> = (0..owners.len())
            .map(|i| owners[turn.wrapping_add(i) % owners.len()])
            .filter(|owner| *owner != self.worker)
            .map(|owner| (weight(&self.shared, owner), owner))
            .collect();
        // Stable: of equal ones the first in turn stays the first.
        others.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        others
    }

    /// Whether a hand-over to the lightest of these is worth what it costs.
    fn is_outweighed(&self, others: &[(f64, usize)]) -> bool {
        let own = weight(&self.shared, self.worker);
        let margin = (SPREAD_MIN * self.shared.connection_weight).max(own * SPREAD_PART);
        others
            .first()
            .is_some_and(|(least, _)| own > least + margin)
    }
}

/// How much a worker has to do.
fn weight(shared: &Shared, worker: usize) -> f64 {
    let stats = &shared.stats.workers[worker];
    let inbound = shared.mailboxes[worker].load().places;
    let connections = stats.sockets.value() as f64 + inbound as f64;
    connections * shared.connection_weight + stats.waiting_events.value() as f64
}

/// A worker that owns an instance keeps a connection unless another one has so many connections
/// less, and this part of its own weight less: a hand-over takes longer than an accept, and the
/// kernel has spread the connections before.
const SPREAD_MIN: f64 = 16.0;
const SPREAD_PART: f64 = 0.125;
