//! Certificates of a running server.

use crate::harness::{Server, certificate, moonwire, run, signal};

#[test]
fn certificates_are_read_again_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = certificate::write(folder.path());
    let file = folder.path().join("moonwire.toml");
    let (shown, of) = (chain.display(), key.display());
    let tls = format!("[tls]\ncert = '{shown}'\nkey = '{of}'\n[services.echo]\ntarget = '/echo'\n");
    std::fs::write(&file, tls).unwrap();
    let server = Server::moonwire(&["--config", file.to_str().unwrap()]);
    let old = folder.path().join("old.pem");
    std::fs::copy(&chain, &old).unwrap();
    let is_trusted = |authority: &std::path::Path| {
        let mut load = moonwire();
        load.args([
            "load",
            &format!("{}/echo", server.url),
            "-c",
            "1",
            "-n",
            "1",
        ]);
        let outcome = run(load.arg("--cacert").arg(authority));
        outcome.stdout.contains("1 ok")
    };
    assert!(is_trusted(&old));

    std::fs::write(&chain, "no certificate").unwrap();
    signal(server.id(), rustix::process::Signal::USR1);
    let line = server.await_line("the certificates stay as they were");
    assert!(line.contains("there is no certificate in it"), "{line}");
    assert!(is_trusted(&old));

    certificate::write(folder.path());
    signal(server.id(), rustix::process::Signal::USR1);
    server.await_line("1 certificate was read again");
    assert!(is_trusted(&chain));
    assert!(!is_trusted(&old));
}
