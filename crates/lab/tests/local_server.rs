//! The server behind a port. In a process of its own: a child that another test is just starting
//! has every socket of this process until it runs its program.

use std::net::TcpListener;

use moonwire_lab::LocalServer;
use moonwire_load::Target;
use moonwire_report::Cell;

#[test]
fn the_process_behind_a_port_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let target = Target::parse(&format!("ws://{address}/")).expect("a good URL");
    let targets = [target];
    let found = LocalServer::find(&targets).expect("it listens");
    let mut cell = Cell::default();
    found.finish(&mut cell);
    let own = std::fs::read_to_string("/proc/self/comm").expect("a process has a name");
    let found = cell.server.expect("it was found");
    assert_eq!(found.name, own.trim_end());
    assert!(found.rss_peak_bytes > Some(0), "it is sampled: {found:?}");
    drop(listener);
    assert!(LocalServer::find(&targets).is_none());
}

#[test]
fn a_server_elsewhere_is_not_looked_for() {
    let target = Target::parse("ws://192.0.2.1:80/").expect("a good URL");
    assert!(LocalServer::find(&[target]).is_none());
}
