//! How a server ends that cannot end by itself.

use crate::harness::Server;

/// A callback that never returns holds its worker, and must not hold the process.
#[test]
fn a_worker_that_does_not_end_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stuck.lua"), STUCK).unwrap();
    let file = folder.path().join("moonwire.toml");
    let toml = "[server]\nworkers = 1\n[limits]\ndrain_timeout_ms = 0\n\
                [services.stuck]\ntarget = '/stuck'\nfolder = '.'\n";
    std::fs::write(&file, toml).unwrap();
    let server = Server::moonwire(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.terminate().code(), Some(1));
}

const STUCK: &str = "
local stuck = {}
function stuck.onStart() end
function stuck.onShutdown() while true do end end
function stuck.onDisconnect(handler) end
function stuck.onMessage(handler, opcode, message) return true end
return stuck
";
