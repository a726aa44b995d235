//! Where a server listens.

use std::net::{SocketAddr, TcpListener};

use moonwire_server::{Config, Overrides, Server};

use crate::client::Client;

#[test]
fn both_families_can_have_an_address_of_their_own_at_one_port() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
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
