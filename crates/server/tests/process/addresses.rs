//! Where a server listens.

use std::net::{SocketAddr, TcpListener};

use moonwire_server::{Config, Overrides, Server};

use crate::client::Client;

#[test]
fn both_families_can_have_an_address_of_their_own_at_one_port() {
    let port = unused_port();
    for listen in [["0.0.0.0", "[::]"], ["[::]", "0.0.0.0"]] {
        let overrides = Overrides {
            listen: listen.map(|ip| format!("{ip}:{port}")).to_vec(),
            workers: Some(2),
            ..Overrides::default()
        };
        let server = Server::start(Config::shipped(&overrides).unwrap());
        let server = server.unwrap_or_else(|error| panic!("{listen:?}: {error}"));
        for ip in ["127.0.0.1", "[::1]"] {
            let address: SocketAddr = format!("{ip}:{port}").parse().unwrap();
            assert_eq!(Client::get(address, "/health").status, 200, "{address}");
        }
        server.stopper().stop();
        server.wait().unwrap();
    }
}

/// A port that the kernel gives to nobody who asks for any, so that no other test takes it in
/// between.
fn unused_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    (1024..first)
        .rev()
        .find(|&port| TcpListener::bind(("::", port)).is_ok())
        .expect("a port below the kernel's range is free")
}
