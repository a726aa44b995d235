//! Connections that close after their messages, and make room for others.

use moonwire_net::Driver;
use moonwire_proto::CloseCode;

use super::{CLOSE_REASON, Worker};
use crate::client::State;
use crate::scenario::Scenario;

impl<D: Driver> Worker<D> {
    /// Whether there is room for another connection.
    pub(super) fn has_room(&self) -> bool {
        self.open < self.open_max
    }

    /// Closes the connection if it has sent all of its messages and awaits no reply.
    pub(super) fn leave_if_done(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        if client.state != State::Up
            || client.track.quota > 0
            || client.track.ledger.in_flight() > 0
        {
            return;
        }
        client.state = State::Leaving;
        if let Some(session) = &mut client.session {
            session.close(CloseCode::NORMAL, CLOSE_REASON);
            self.desk.touch(index, &mut client.track);
        }
    }
}

/// The connections that worker `number` of `workers` may have open at once: all shares add up to
/// the maximum of the scenario.
pub(super) fn share_of_open(scenario: &Scenario, number: u32, workers: u32) -> usize {
    scenario.open_max.map_or(usize::MAX, |open_max| {
        (open_max / workers + u32::from(number < open_max % workers)) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Settings, Stop};
    use crate::target::Target;

    #[test]
    fn the_shares_of_all_workers_add_up() {
        for (open_max, threads) in [(100, 3), (2, 8), (7, 7), (1, 1)] {
            let scenario = Scenario::new(Settings {
                targets: vec![Target::parse("ws://127.0.0.1:9/").unwrap()],
                connections: 1000,
                threads,
                messages_per_connection: Some(1),
                open_max: Some(open_max),
                barrier: false,
                stop: Stop::Schedule,
                ..Settings::default()
            })
            .unwrap();
            let workers = scenario.workers();
            let shares = (0..workers).map(|number| share_of_open(&scenario, number, workers));
            let shares: Vec<usize> = shares.collect();
            assert_eq!(shares.iter().sum::<usize>(), open_max as usize);
            assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
        }
    }
}
