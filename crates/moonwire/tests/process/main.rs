//! Process tests: the product as a user meets it, over real sockets and signals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

mod agent;
mod apps;
mod attacks;
mod bad_input;
mod battle;
mod certificates;
mod cpu_limits;
mod cws;
mod ending;
mod hostile;
mod hostile_server;
mod installation;
mod lab;
mod lapps;
mod live_counters;
mod load_options;
mod load_runs;
mod no_effect;
mod results;
mod scenario_files;
mod stages;
mod tables;
mod trust;
mod tungstenite;
