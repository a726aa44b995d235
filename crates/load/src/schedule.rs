//! Intended send times, computed without a clock.
//!
//! A [`Schedule`] is the plan of the whole run and is shared; a [`Cursor`] is where one connection
//! stands in it. All times are nanoseconds from the common start. A time is computed from the
//! number of its message, never from the time before it, so that nothing drifts; and it does not
//! depend on how connections are spread over workers.

mod integral;

use self::integral::{Integral, MESSAGE, Mass};
use crate::scenario::{Arrival, Pacing, Scenario, Stop};
use crate::stages::RateStages;

/// The plan of a run: pure, shared by all workers.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    shape: Shape,
    /// Connections that send, over all workers, at least 1; they are the first ones.
    connections: u64,
    /// No message is intended at or after this time.
    end_ns: u64,
    /// Messages over all connections; `None` where only time ends them.
    messages: Option<u64>,
    /// The connections' own times start one after the other, evenly over this long.
    stagger_ns: u64,
    seed: u64,
}

/// Where one connection stands in the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    /// Intended time of the next message; [`NEVER`] when there is none, or in a closed loop.
    next_ns: u64,
    /// Number of the next message in the arithmetic of the shape.
    k: u64,
    /// Messages this connection may still send.
    left: u64,
    /// Start of this connection's own time: when it joined, its stagger included.
    epoch_ns: u64,
    /// The integral of a rate in stages at the next message; unused by other shapes.
    mass: Mass,
    /// Source of its Poisson arrivals; unused by other shapes.
    random: fastrand::Rng,
}

impl Schedule {
    /// The plan of a scenario.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let connections = u64::from(scenario.senders());
        let end_ns = match (&scenario.pacing, scenario.stop) {
            (Pacing::Stages { stages, .. }, _) => duration_ns(stages.duration()),
            (_, Stop::After(duration)) => duration_ns(duration),
            (_, Stop::Messages(_) | Stop::Schedule) => NEVER,
        };
        let messages = match scenario.stop {
            Stop::Messages(total) => Some(total),
            Stop::After(_) | Stop::Schedule => None,
        };
        Self {
            shape: Shape::new(&scenario.pacing, connections, messages, scenario.seed),
            connections,
            end_ns,
            messages,
            stagger_ns: scenario.stagger.map_or(0, duration_ns),
            seed: scenario.seed,
        }
    }

    /// The cursor of `connection`, which comes up `joined_ns` after the start: 0 behind a barrier.
    pub(crate) fn join(&self, connection: u32, joined_ns: u64) -> Cursor {
        let stagger_ns = self.stagger_ns(u64::from(connection));
        let mut cursor = Cursor {
            next_ns: NEVER,
            k: 0,
            left: self.share(connection),
            epoch_ns: joined_ns.saturating_add(stagger_ns),
            mass: 0,
            random: fastrand::Rng::with_seed(mix(self.seed, u64::from(connection))),
        };
        if let Shape::Constant { rate_millihertz } = self.shape
            && cursor.left > 0
        {
            // The first place of this connection in the common grid that has not passed yet.
            let round = u128::from(rate_millihertz) * u128::from(joined_ns)
                / (u128::from(self.connections) * PICO);
            cursor.k = u64::try_from(round).unwrap_or(u64::MAX);
            while self.grid_ns(connection, cursor.k, rate_millihertz) < joined_ns {
                cursor.k += 1;
            }
        }
        if let Shape::Staged { integral, .. } = &self.shape {
            cursor.k = self.rounds(connection, integral.messages_before(joined_ns).into());
            cursor.mass = integral.mass(joined_ns);
        }
        self.place(connection, &mut cursor);
        cursor
    }

    /// Steps over the message at `cursor.next_ns()`: it was sent, or given up.
    pub(crate) fn advance(&self, connection: u32, cursor: &mut Cursor) {
        cursor.k += 1;
        cursor.left = cursor.left.saturating_sub(1);
        self.place(connection, cursor);
    }

    /// Messages of `connection` that are intended before `until_ns` and not sent yet. Of a Poisson
    /// schedule it draws at most [`DUE_DRAWN_MAX`], which is then what it says.
    pub(crate) fn due_before(&self, connection: u32, cursor: &Cursor, until_ns: u64) -> u64 {
        let until_ns = until_ns.min(self.end_ns);
        if cursor.next_ns >= until_ns {
            return 0;
        }
        let of_schedule = match self.shape {
            Shape::Closed | Shape::Hold => 0,
            Shape::Constant { rate_millihertz } => {
                let places = (u128::from(until_ns) * u128::from(rate_millihertz)).div_ceil(PICO);
                self.rounds(connection, places).saturating_sub(cursor.k)
            }
            Shape::Staged {
                ref integral,
                is_poisson: false,
            } => {
                let places = integral.messages_before(until_ns).into();
                self.rounds(connection, places).saturating_sub(cursor.k)
            }
            Shape::Batches { batch, wait_ns, .. } => {
                let elapsed_ns = until_ns - cursor.epoch_ns;
                let begun = elapsed_ns
                    .checked_div(wait_ns)
                    .map_or(u64::MAX, |_| elapsed_ns.div_ceil(wait_ns));
                begun.saturating_mul(batch).saturating_sub(cursor.k)
            }
            Shape::Poisson { .. } | Shape::Scattered { .. } | Shape::Staged { .. } => {
                let mut cursor = cursor.clone();
                let mut drawn = 0;
                while cursor.next_ns < until_ns && drawn < DUE_DRAWN_MAX {
                    drawn += 1;
                    self.advance(connection, &mut cursor);
                }
                drawn
            }
        };
        of_schedule.min(cursor.left)
    }

    /// When sending ends by the schedule; `None` where the peer decides.
    pub(crate) fn planned_ns(&self) -> Option<u64> {
        let of_shape = match (&self.shape, self.messages) {
            (&Shape::Constant { rate_millihertz }, Some(messages)) => {
                u64::try_from(u128::from(messages) * PICO / u128::from(rate_millihertz)).ok()
            }
            (&Shape::Scattered { length_ns }, _) => Some(length_ns as u64),
            (
                &Shape::Batches {
                    batch,
                    wait_ns,
                    messages: own,
                },
                _,
            ) => {
                let last_ns = self.last_stagger_ns();
                Some(
                    ((own - 1) / batch)
                        .saturating_mul(wait_ns)
                        .saturating_add(last_ns),
                )
            }
            (Shape::Closed | Shape::Hold | Shape::Poisson { .. } | Shape::Staged { .. }, _)
            | (Shape::Constant { .. }, None) => None,
        };
        match of_shape {
            Some(of_shape) => Some(of_shape.min(self.end_ns)),
            None => (self.end_ns != NEVER).then_some(self.end_ns),
        }
    }

    /// When the last message of a connection that has joined is intended; `None` where only time
    /// ends them, or the peer.
    pub(crate) fn last_ns(&self, connection: u32, cursor: &Cursor) -> Option<u64> {
        if self.end_ns != NEVER || cursor.next_ns == NEVER {
            return None;
        }
        let last = cursor.k.saturating_add(cursor.left - 1);
        match self.shape {
            Shape::Constant { rate_millihertz } => {
                Some(self.grid_ns(connection, last, rate_millihertz))
            }
            Shape::Scattered { length_ns } => {
                Some(cursor.epoch_ns.saturating_add(length_ns as u64))
            }
            Shape::Batches { batch, wait_ns, .. } => {
                let own_ns = (last / batch).saturating_mul(wait_ns);
                Some(cursor.epoch_ns.saturating_add(own_ns))
            }
            Shape::Closed | Shape::Hold | Shape::Poisson { .. } | Shape::Staged { .. } => None,
        }
    }

    /// When no message is intended any more; [`NEVER`] where only a number of messages ends it.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Messages of `connection`: all shares add up to the total, however many connections.
    fn share(&self, connection: u32) -> u64 {
        if u64::from(connection) >= self.connections {
            return 0;
        }
        let of_total = self.messages.map_or(NEVER, |messages| {
            let rest = messages % self.connections;
            messages / self.connections + u64::from(u64::from(connection) < rest)
        });
        match self.shape {
            Shape::Batches { messages, .. } => messages.min(of_total),
            Shape::Hold => 0,
            Shape::Closed
            | Shape::Constant { .. }
            | Shape::Poisson { .. }
            | Shape::Scattered { .. }
            | Shape::Staged { .. } => of_total,
        }
    }

    /// Computes the time of message `cursor.k`.
    fn place(&self, connection: u32, cursor: &mut Cursor) {
        let next_ns = match self.shape {
            _ if cursor.left == 0 => NEVER,
            Shape::Closed | Shape::Hold => NEVER,
            Shape::Constant { rate_millihertz } => {
                self.grid_ns(connection, cursor.k, rate_millihertz)
            }
            Shape::Poisson { gap_ns } => {
                let gap_ns = exponential(&mut cursor.random) * gap_ns;
                cursor.before_ns().saturating_add(gap_ns.round() as u64)
            }
            Shape::Scattered { length_ns } => {
                // The first of so many uniform times in what is left.
                let before_ns = cursor.before_ns();
                let left_ns = length_ns - (before_ns - cursor.epoch_ns) as f64;
                let gap = -(-exponential(&mut cursor.random) / cursor.left as f64).exp_m1();
                before_ns.saturating_add((left_ns.max(0.0) * gap) as u64)
            }
            Shape::Batches { batch, wait_ns, .. } => cursor
                .epoch_ns
                .saturating_add((cursor.k / batch).saturating_mul(wait_ns)),
            Shape::Staged {
                ref integral,
                is_poisson,
            } => {
                cursor.mass = match is_poisson {
                    false => self.number(connection, cursor.k) * MESSAGE,
                    true => {
                        // In the measure of the integral the arrivals have a constant rate.
                        let gap = exponential(&mut cursor.random) * self.connections as f64;
                        cursor.mass + (gap * MESSAGE as f64) as Mass
                    }
                };
                integral.time_ns(cursor.mass)
            }
        };
        cursor.next_ns = if next_ns < self.end_ns {
            next_ns
        } else {
            NEVER
        };
    }

    /// How much later than the first connection the last one starts.
    pub(crate) fn last_stagger_ns(&self) -> u64 {
        self.stagger_ns(self.connections - 1)
    }

    /// How much later than the others' first the first message of `connection` is.
    fn stagger_ns(&self, connection: u64) -> u64 {
        let place_ns = u128::from(self.stagger_ns) * u128::from(connection);
        u64::try_from(place_ns / u128::from(self.connections)).unwrap_or(NEVER)
    }

    /// Which of all messages is message `k` of `connection`, where connections take turns.
    fn number(&self, connection: u32, k: u64) -> u128 {
        u128::from(k) * u128::from(self.connections) + u128::from(connection)
    }

    /// How many of the first `places` messages are `connection`'s, where connections take turns.
    fn rounds(&self, connection: u32, places: u128) -> u64 {
        let rounds = places
            .saturating_sub(u128::from(connection))
            .div_ceil(u128::from(self.connections));
        u64::try_from(rounds).unwrap_or(u64::MAX)
    }

    /// The constant rate: message `i = k * connections + connection` at `i / rate`.
    fn grid_ns(&self, connection: u32, k: u64, rate_millihertz: u64) -> u64 {
        let i = self.number(connection, k);
        u64::try_from(i * PICO / u128::from(rate_millihertz)).unwrap_or(NEVER)
    }
}

impl Cursor {
    /// The time before the next one.
    fn before_ns(&self) -> u64 {
        match self.k {
            0 => self.epoch_ns,
            _ => self.next_ns,
        }
    }

    /// Intended time of the next message; [`NEVER`] when there is none.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// When a closed loop on this connection starts.
    pub(crate) fn epoch_ns(&self) -> u64 {
        self.epoch_ns
    }

    /// Messages this connection may still send, in a closed loop.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

/// No such time.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
enum Shape {
    Closed,
    Constant {
        /// Messages in 1000 s over all connections.
        rate_millihertz: u64,
    },
    Poisson {
        /// Mean gap on one connection. Independent arrivals on each connection add up to
        /// independent arrivals over all of them.
        gap_ns: f64,
    },
    /// Poisson arrivals until there were so many. Between the start and the arrival after the last
    /// one they are independent uniform times, whichever connections they are given to: so every
    /// connection has its share, and all of them together are one Poisson stream.
    Scattered {
        /// When the arrival after the last one would be.
        length_ns: f64,
    },
    Batches {
        batch: u64,
        wait_ns: u64,
        /// Messages per connection, at least 1.
        messages: u64,
    },
    Hold,
    /// A rate that changes, one grid or one Poisson stream in the measure of its integral.
    Staged {
        integral: Integral,
        is_poisson: bool,
    },
}

impl Shape {
    fn new(pacing: &Pacing, connections: u64, messages: Option<u64>, seed: u64) -> Self {
        match *pacing {
            Pacing::Closed { .. } => Self::Closed,
            Pacing::Open {
                rate,
                arrival: Arrival::Constant,
                ..
            } => Self::Constant {
                rate_millihertz: (rate * 1000.0).round().max(1.0) as u64,
            },
            Pacing::Open {
                rate,
                arrival: Arrival::Poisson,
                ..
            } => match messages {
                Some(messages) => {
                    let mut random = fastrand::Rng::with_seed(mix(seed, NEVER - 1));
                    let gaps = gamma(&mut random, messages as f64 + 1.0);
                    Self::Scattered {
                        length_ns: gaps * 1e9 / rate,
                    }
                }
                None => Self::Poisson {
                    gap_ns: connections as f64 * 1e9 / rate,
                },
            },
            Pacing::Batches {
                batch,
                wait,
                batches,
                ..
            } => Self::Batches {
                batch: u64::from(batch),
                wait_ns: duration_ns(wait),
                messages: u64::from(batch).saturating_mul(batches),
            },
            Pacing::Hold => Self::Hold,
            Pacing::Stages {
                ref stages,
                arrival,
                ..
            } => Self::Staged {
                integral: Integral::new(stages),
                is_poisson: arrival == Arrival::Poisson,
            },
        }
    }
}

/// Messages of a rate in stages.
pub(crate) fn messages_of(stages: &RateStages) -> u64 {
    let integral = Integral::new(stages);
    integral.messages_before(integral.length_ns())
}

/// A duration as nanoseconds, at most [`NEVER`].
pub(crate) fn duration_ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Spreads consecutive numbers over all 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A gap of mean 1 in a Poisson stream.
fn exponential(random: &mut fastrand::Rng) -> f64 {
    // 1 - u lies in (0, 1], so that the logarithm is finite.
    -(1.0 - random.f64()).ln()
}

/// The sum of `gaps` gaps of mean 1, at least one (the method of Marsaglia and Tsang, 2000).
fn gamma(random: &mut fastrand::Rng, gaps: f64) -> f64 {
    let d = gaps - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        // A normal number by Box and Muller.
        let angle = std::f64::consts::TAU * random.f64();
        let x = (2.0 * exponential(random)).sqrt() * angle.cos();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && -exponential(random) < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// Messages drawn to count what is due; at the highest rates that is not all.
const DUE_DRAWN_MAX: u64 = 10_000_000;
/// Nanoseconds times 1000, because rates are counted in 1000 s.
const PICO: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests;
