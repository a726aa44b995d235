//! What comes back from instances on other threads.

use moonwire_net::{Driver, take_compression_work};
use moonwire_proto::CloseCode;

use super::connections::Stage;
use super::resident::Reaction;
use super::scripts::Place;
use super::threaded::Done;
use super::{Desk, WORK_PER_TURN, Worker};

impl<D: Driver> Worker<D> {
    /// What other threads have done, at most so much in one turn; the rest wakes the next turn.
    pub(super) fn read_done(&mut self) {
        let mut work = 0;
        for _ in 0..DONE_PER_TURN_MAX {
            let Some(done) = self.desk.shared.done[self.desk.worker].take() else {
                return;
            };
            work += done.effects.memory_bytes();
            self.finish_callback(done);
            work += take_compression_work();
            if work >= WORK_PER_TURN {
                break;
            }
        }
        self.driver.waker().wake();
    }

    fn finish_callback(&mut self, done: Done) {
        let Done {
            place,
            handler,
            effects,
            reaction,
        } = done;
        let now = self.driver.now();
        let desk = &mut self.desk;
        desk.apply(place, &effects, &mut self.driver);
        if let Some(connection) = desk.connections.of_handler(handler, place) {
            connection.session.resume(now);
            let socket = connection.socket;
            desk.mark_dirty(socket);
        }
        if reaction == Reaction::Replaced {
            self.scripts.renew(place);
        }
        desk.react(place, handler, reaction, &mut self.driver);
        if self.scripts.is_half_empty(place) {
            for socket in desk.waiting.remove(&place).unwrap_or_default() {
                if let Some(connection) = desk.connections.of_socket(socket) {
                    connection.session.resume(now);
                    desk.mark_dirty(socket);
                }
            }
        }
    }
}

impl Desk {
    /// The instance there knows its connections no more: they end.
    pub(super) fn orphan(&mut self, place: Place) {
        for socket in self.connections.sockets() {
            let Some(connection) = self.connections.of_socket(socket) else {
                continue;
            };
            let Stage::Open {
                place: owner,
                handler,
                ..
            } = connection.stage
            else {
                continue;
            };
            if owner == place {
                connection.close(CloseCode::INTERNAL_ERROR, "the service was started again");
                self.leave_service(socket, place, handler);
                self.connections.change(socket, Stage::Over);
                self.mark_dirty(socket);
            }
        }
    }
}

/// Callbacks whose effects are applied in one turn, if they are no more than [`WORK_PER_TURN`].
const DONE_PER_TURN_MAX: usize = 256;
