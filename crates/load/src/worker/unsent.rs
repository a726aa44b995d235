//! What each connection sent, and what was due and is not sent when sending ends.

use std::sync::atomic::Ordering;

use moonwire_net::Driver;

use super::Worker;
use crate::client::{Client, State};
use crate::schedule::NEVER;

impl<D: Driver> Worker<D> {
    /// Counts what was due and is not sent, by who was in its way.
    pub(super) fn count_unsent(&mut self) {
        let until_ns = if self.is_given_up() {
            NEVER
        } else {
            self.now_ns.saturating_sub(self.start_ns())
        };
        if self.plan.is_short_lived() {
            self.unsent_down += self.unsent_of_short_lived();
            self.unsent_waiting += self.unsent_down;
            return;
        }
        // Who stops a run from outside waits for no number of messages.
        let is_counted = self.plan.is_counted() && !self.shared.stop.load(Ordering::Acquire);
        if is_counted {
            // What a closed loop did not come to, because its peer did not answer.
            let budget = self.desk.budget();
            self.unsent_waiting += budget;
            self.unsent_down += if self.up == 0 { budget } else { 0 };
        }
        let schedule = &self.plan.schedule;
        for client in &self.clients {
            let Client { number, track, .. } = client;
            let due = match &track.cursor {
                Some(cursor) => schedule.due_before(*number, cursor, until_ns),
                // It never came up, and its messages were due nevertheless.
                None if self.plan.is_closed() && is_counted => schedule.join(*number, 0).left(),
                None => schedule.due_before(*number, &schedule.join(*number, 0), until_ns),
            };
            // Those of a stage that did not come are unsent, too.
            self.desk.stages.left(|end_ns| match &track.cursor {
                Some(cursor) => schedule.due_before(*number, cursor, end_ns),
                None => schedule.due_before(*number, &schedule.join(*number, 0), end_ns),
            });
            let is_up = client.state == State::Up;
            if is_up && !track.blocked {
                self.unsent_ready += due;
            } else {
                self.unsent_waiting += due;
                self.unsent_down += if is_up { 0 } else { due };
            }
        }
    }

    /// The least and the most messages of one connection that was up; `None` where others than the
    /// server say how many these are.
    pub(super) fn sent_each(&self) -> Option<(u64, u64)> {
        if self.plan.is_short_lived() || self.plan.programme.is_some() {
            return None;
        }
        let joined = self.clients.iter().filter(|it| it.track.cursor.is_some());
        let sent = joined.map(|client| client.track.ledger.next_seq());
        sent.fold(None, |range, sent| {
            let (least, most) = range.unwrap_or((sent, sent));
            Some((least.min(sent), most.max(sent)))
        })
    }

    /// Messages of connections that are down for good and did not send them.
    fn unsent_of_short_lived(&self) -> u64 {
        let down = self
            .clients
            .iter()
            .filter(|client| client.state == State::Down);
        down.map(|client| client.track.quota).sum()
    }
}
