//! A loop that runs out of descriptors. In a process of its own: the limit is the process's.
#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

use std::net::TcpStream;
use std::time::Duration;

use moonwire_net::{Completion, Driver, EpollDriver, listen_socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_loop_without_descriptors_rests_and_goes_on_when_there_are_some() {
    let mut driver = EpollDriver::new().unwrap();
    let listener = listen_socket(([127, 0, 0, 1], 0).into(), false, 64).unwrap();
    let addr = listener.local_addr().unwrap();
    driver.listen(listener.into()).unwrap();
    let peers: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect();

    let before = getrlimit(Resource::Nofile);
    // The standard streams stay below it, so nothing new fits; what is open stays open.
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(3),
            ..before
        },
    )
    .unwrap();

    let (mut accepted, mut failed, mut turns) = (0, 0, 0);
    let start = driver.now();
    while driver.now() - start < Duration::from_millis(350) {
        driver
            .wait(Some(driver.now() + Duration::from_millis(350)))
            .unwrap();
        turns += 1;
        while let Some(completion) = driver.next() {
            match completion {
                Completion::Accepted { .. } => accepted += 1,
                Completion::AcceptFailed { error, .. } => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                    failed += 1;
                }
                Completion::Connected { .. }
                | Completion::Received { .. }
                | Completion::EndOfStream { .. }
                | Completion::Failed { .. }
                | Completion::Sent { .. }
                | Completion::Blocked { .. }
                | Completion::Detached { .. }
                | Completion::Woken => panic!("{completion:?}"),
            }
        }
    }
    assert_eq!(accepted, 0);
    assert!((2..=5).contains(&failed), "{failed} failures");
    assert!(turns < 20, "it spins: {turns} turns");

    setrlimit(Resource::Nofile, before).unwrap();
    let give_up = driver.now() + Duration::from_secs(5);
    while accepted < peers.len() {
        assert!(driver.now() < give_up);
        driver.wait(Some(give_up)).unwrap();
        while let Some(completion) = driver.next() {
            accepted += usize::from(matches!(completion, Completion::Accepted { .. }));
        }
    }
}
