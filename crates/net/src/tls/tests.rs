use std::path::Path;

use super::*;

struct Pair {
    client: Records,
    server: Records,
}

fn pair(server: &ServerTls, client: &ClientTls, name: &str) -> Pair {
    let client = Records::client(client, name).unwrap();
    Pair {
        client,
        server: Records::server(server).unwrap(),
    }
}

/// Records of one end, opened by the other in pieces of `step` bytes.
fn carry(from: &mut Records, to: &mut Records, step: usize) -> Result<Vec<u8>, TlsError> {
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    from.write(b"", &mut wire);
    for piece in wire.chunks_mut(step) {
        to.open(piece, &mut plain, false)?;
    }
    Ok(plain)
}

fn handshake(pair: &mut Pair, step: usize) -> Result<(), TlsError> {
    while pair.client.is_handshaking() || pair.server.is_handshaking() {
        carry(&mut pair.client, &mut pair.server, step)?;
        carry(&mut pair.server, &mut pair.client, step)?;
    }
    // The ticket.
    carry(&mut pair.server, &mut pair.client, step).map(drop)
}

#[test]
fn plaintext_survives_any_cut_of_its_records() {
    let server = ServerTls::self_signed().unwrap();
    let client = ClientTls::new(&Trust::Anyone).unwrap();
    for step in [1, 7, 1000, 5000, 100_000] {
        let mut pair = pair(&server, &client, "localhost");
        handshake(&mut pair, step).unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        pair.client.write(&sent, &mut wire);
        for piece in wire.chunks_mut(step) {
            pair.server.open(piece, &mut plain, false).unwrap();
        }
        assert!(plain == sent, "in steps of {step}");
    }
}

#[test]
fn both_versions_and_our_choice_of_cipher() {
    let server = ServerTls::self_signed().unwrap();
    for (version, name, suite) in [
        (&rustls::version::TLS13, "1.3", "TLS13_AES_128_GCM_SHA256"),
        (
            &rustls::version::TLS12,
            "1.2",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ),
    ] {
        // A client that would rather have something else.
        let mut other = aws_lc_rs::default_provider();
        other.cipher_suites.reverse();
        let trusting = ClientTls::new(&Trust::Anyone).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(other))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        config
            .dangerous()
            .set_certificate_verifier(trusting.verifier());
        let client = ClientTls::with_config(config);
        let mut pair = pair(&server, &client, "localhost");
        handshake(&mut pair, 4096).unwrap();
        let facts = pair.server.facts().unwrap();
        assert_eq!((facts.version, facts.cipher), (name, suite));
    }
}

#[test]
fn what_was_agreed_on_is_known_with_whether_it_was_resumed() {
    let server = ServerTls::self_signed().unwrap();
    // Sessions are resumed by default.
    let client = client_of(&rustls::version::TLS13);
    for is_resumed in [false, true] {
        let mut pair = pair(&server, &client, "localhost");
        assert_eq!(pair.client.facts(), None);
        handshake(&mut pair, 4096).unwrap();
        let expected = TlsFacts {
            version: "1.3",
            cipher: "TLS13_AES_128_GCM_SHA256",
            group: Some("X25519"),
            key: Some(CertificateKey {
                kind: "ECDSA",
                bits: 256,
            }),
            alpn: None,
            is_resumed,
        };
        assert_eq!(pair.client.facts(), Some(expected));
    }
    // Ours does not, and offers what is spoken inside.
    let client = ClientTls::new(&Trust::Anyone).unwrap();
    for _ in 0..2 {
        let mut pair = pair(&server, &client, "localhost");
        handshake(&mut pair, 4096).unwrap();
        let facts = pair.client.facts().unwrap();
        let found = (facts.alpn.as_deref(), facts.is_resumed);
        assert_eq!(found, (Some("http/1.1"), false));
    }
}

fn of_versions(versions: TlsVersions) -> ServerTls {
    let rules = ServerTlsRules {
        versions,
        ..ServerTlsRules::default()
    };
    ServerTls::self_signed_with(&rules).unwrap()
}

#[test]
fn a_server_of_one_version_refuses_the_other() {
    let (tls12, tls13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    for (versions, spoken, refused) in [
        (TlsVersions::Tls12, tls12, tls13),
        (TlsVersions::Tls13, tls13, tls12),
    ] {
        let server = of_versions(versions);
        let mut agreed = pair(&server, &client_of(spoken), "localhost");
        handshake(&mut agreed, 4096).unwrap();
        let mut refused = pair(&server, &client_of(refused), "localhost");
        assert!(handshake(&mut refused, 4096).is_err());
    }
}

/// A client that speaks one version and trusts anyone.
fn client_of(version: &'static rustls::SupportedProtocolVersion) -> ClientTls {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let trusting = ClientTls::new(&Trust::Anyone).unwrap();
    config
        .dangerous()
        .set_certificate_verifier(trusting.verifier());
    ClientTls::with_config(config)
}

#[test]
fn a_certificate_nobody_knows_is_refused_with_a_sentence_and_an_alert() {
    let server = ServerTls::self_signed().unwrap();
    let other = ServerTls::self_signed().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    std::fs::write(&path, other.self_signed_pem().unwrap()).unwrap();
    let client = ClientTls::new(&Trust::Authorities(path)).unwrap();
    let mut pair = pair(&server, &client, "localhost");
    let error = handshake(&mut pair, 4096).unwrap_err();
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the peer's certificate was not accepted: "),
        "{sentence}"
    );
    let alert = carry(&mut pair.client, &mut pair.server, 4096).unwrap_err();
    assert!(
        alert.to_string().contains("received fatal alert"),
        "{alert}"
    );
}

/// The name is all that is not looked at.
#[test]
fn without_the_check_of_names_only_the_authority_counts() {
    let server = ServerTls::self_signed().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    std::fs::write(&path, server.self_signed_pem().unwrap()).unwrap();
    let rules = |versions| {
        let trust = Trust::Authorities(path.clone());
        ClientTls::with_rules(&trust, versions, NameCheck::Skipped).unwrap()
    };
    for versions in [TlsVersions::Both, TlsVersions::Tls12, TlsVersions::Tls13] {
        let client = rules(versions);
        handshake(&mut pair(&server, &client, "example.org"), 4096).unwrap();
        let stranger = ServerTls::self_signed().unwrap();
        let error = handshake(&mut pair(&stranger, &client, "localhost"), 4096).unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.contains("was not accepted"), "{sentence}");
    }
    let older = of_versions(TlsVersions::Tls12);
    let client = rules(TlsVersions::Tls13);
    assert!(handshake(&mut pair(&older, &client, "localhost"), 4096).is_err());
}

#[test]
fn a_certificate_in_the_file_is_accepted_for_its_names_only() {
    let server = ServerTls::self_signed().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    std::fs::write(&path, server.self_signed_pem().unwrap()).unwrap();
    let client = ClientTls::new(&Trust::Authorities(path)).unwrap();
    for name in ["localhost", "127.0.0.1", "::1"] {
        handshake(&mut pair(&server, &client, name), 4096).unwrap();
    }
    let error = handshake(&mut pair(&server, &client, "example.org"), 4096).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer's certificate was not accepted: it is not for example.org but for localhost, \
         127.0.0.1, ::1"
    );
}

#[test]
fn garbage_is_an_error_with_an_alert_for_the_peer() {
    let mut server = Records::server(&ServerTls::self_signed().unwrap()).unwrap();
    let error = server
        .open(
            &mut b"GET / HTTP/1.1\r\n\r\n".to_owned(),
            &mut Vec::new(),
            false,
        )
        .unwrap_err();
    assert!(error.to_string().starts_with("TLS failed: "), "{error}");
    let mut alert = Vec::new();
    server.write(b"", &mut alert);
    assert_eq!(alert.first(), Some(&21));
}

#[test]
fn errors_name_the_file_and_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let good = file("good.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let other_key = file("other.pem", &other.signing_key.serialize_pem());
    let empty = file("empty.pem", "");
    let missing = folder.path().join("missing.pem");
    ServerTls::from_pem(&good, &key).unwrap();
    let cases: [(&Path, &Path, &[&str]); 5] = [
        (
            &missing,
            &key,
            &["cannot read ", "missing.pem", "No such file"],
        ),
        (&empty, &key, &["empty.pem: there is no certificate in it"]),
        (&good, &missing, &["cannot read ", "missing.pem"]),
        (&good, &good, &["good.pem: there is no private key in it"]),
        (
            &good,
            &other_key,
            &["other.pem: it is not the key of ", "good.pem"],
        ),
    ];
    for (certificate, key, parts) in cases {
        let error = ServerTls::from_pem(certificate, key)
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn nothing_follows_the_notice_of_the_close() {
    let server = ServerTls::self_signed().unwrap();
    let client = ClientTls::new(&Trust::Anyone).unwrap();
    let mut pair = pair(&server, &client, "localhost");
    handshake(&mut pair, 4096).unwrap();
    let mut wire = Vec::new();
    pair.client.write(b"last", &mut wire);
    pair.client.notify_close();
    pair.client.notify_close();
    pair.client.write(b"lost", &mut wire);
    wire.extend_from_slice(b"not even TLS");
    let mut plain = Vec::new();
    pair.server.open(&mut wire, &mut plain, false).unwrap();
    pair.server
        .open(&mut b"nor this".to_owned(), &mut plain, false)
        .unwrap();
    assert_eq!(plain, b"last");
    // Its own end is still open.
    let (mut wire, mut answer) = (Vec::new(), Vec::new());
    pair.server.write(b"understood", &mut wire);
    pair.server.notify_close();
    pair.server.write(b"", &mut wire);
    pair.client.open(&mut wire, &mut answer, false).unwrap();
    assert_eq!(answer, b"understood");
}

/// rustls tells of the notice only after its tickets are written.
#[test]
fn who_says_at_once_that_it_sends_no_more_is_answered_all_the_same() {
    let server = ServerTls::self_signed().unwrap();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let client = ClientTls::of_version(version, aws_lc_rs::default_provider());
        for step in [1, 100_000] {
            let mut pair = pair(&server, &client, "localhost");
            while pair.client.is_handshaking() {
                carry(&mut pair.client, &mut pair.server, 4096).unwrap();
                carry(&mut pair.server, &mut pair.client, 4096).unwrap();
            }
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            pair.client.write(b"question", &mut wire);
            pair.client.notify_close();
            pair.client.write(b"", &mut wire);
            for piece in wire.chunks_mut(step) {
                pair.server.open(piece, &mut plain, false).unwrap();
            }
            assert_eq!(plain, b"question");
            assert!(pair.server.is_ended(), "{version:?} in steps of {step}");
            let (mut wire, mut answer) = (Vec::new(), Vec::new());
            pair.server.write(b"answer", &mut wire);
            pair.client.open(&mut wire, &mut answer, false).unwrap();
            assert_eq!(answer, b"answer", "{version:?} in steps of {step}");
        }
    }
}

#[test]
fn keys_seal_all_that_they_are_given_or_nothing_more_ever() {
    let server = ServerTls::self_signed().unwrap();
    let client = ClientTls::of_few_records(100);
    let mut pair = pair(&server, &client, "localhost");
    handshake(&mut pair, 4096).unwrap();
    let (mut sealed, mut wire, mut plain) = (0, Vec::new(), Vec::new());
    while !pair.client.is_exhausted() {
        assert!(sealed < 1000, "the keys may not be used so often");
        pair.client.write(b"x", &mut wire);
        sealed += usize::from(!pair.client.is_exhausted());
    }
    let length = wire.len();
    pair.client.write(b"lost", &mut wire);
    assert_eq!(wire.len(), length);
    assert!(!pair.client.wants_write());
    pair.server.open(&mut wire, &mut plain, false).unwrap();
    assert_eq!(plain.len(), sealed);
    assert!(pair.server.is_ended());
}

#[test]
fn an_idle_connection_keeps_no_buffer() {
    let server = ServerTls::self_signed().unwrap();
    let client = ClientTls::new(&Trust::Anyone).unwrap();
    let mut pair = pair(&server, &client, "localhost");
    handshake(&mut pair, 1000).unwrap();
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    pair.client.write(&[5; 40_000], &mut wire);
    pair.server.open(&mut wire, &mut plain, false).unwrap();
    for records in [&pair.client, &pair.server] {
        assert_eq!(records.buffer_bytes(), 0);
    }
}

#[test]
fn a_handshake_message_without_end_is_an_error() {
    // TLS 1.2 in a record that says so: a ClientHello of 64 KiB, which never comes to an end.
    let mut server = Records::server(&ServerTls::self_signed().unwrap()).unwrap();
    let mut plain = Vec::new();
    let mut hello = vec![1, 0, 0xff, 0xff, 3, 3];
    hello.resize(40, 0);
    let mut sent = 0;
    let mut failed = false;
    while sent < 4 * 1024 * 1024 && !failed {
        let mut record = vec![22, 3, 3, 0, hello.len() as u8];
        record.append(&mut hello);
        sent += record.len();
        failed = server.open(&mut record, &mut plain, false).is_err();
        assert!(server.buffer_bytes() < 200 * 1024);
        hello = vec![0];
    }
    assert!(failed, "after {sent} B");
}

/// A certificate for these names in a folder.
fn written(folder: &Path, file: &str, names: &[&str]) -> CertificateFiles {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let files = CertificateFiles {
        certificate: folder.join(format!("{file}.crt")),
        key: folder.join(format!("{file}.key")),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    files
}

fn trusting(files: &CertificateFiles) -> ClientTls {
    ClientTls::new(&Trust::Authorities(files.certificate.clone())).unwrap()
}

#[test]
fn a_client_is_shown_the_certificate_of_the_server_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let one = written(folder.path(), "one", &["one.example", "127.0.0.1"]);
    let two = written(folder.path(), "two", &["two.example", "*.two.example"]);
    let rules = ServerTlsRules::default();
    let server = ServerTls::from_files(&[one.clone(), two.clone()], &rules).unwrap();
    for (trusted, name) in [
        (&one, "one.example"),
        (&two, "two.example"),
        (&two, "any.two.example"),
        // It names no server.
        (&one, "127.0.0.1"),
    ] {
        handshake(&mut pair(&server, &trusting(trusted), name), 4096).unwrap();
    }
    // Nobody's name: the first of all, which is not for it.
    let error = handshake(&mut pair(&server, &trusting(&one), "three.example"), 4096);
    let sentence = error.unwrap_err().to_string();
    assert!(
        sentence.contains("not for three.example but for one.example"),
        "{sentence}"
    );
}

#[test]
fn certificates_are_read_again_and_connections_stay() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["localhost"];
    let files = written(folder.path(), "server", &names);
    let old = trusting(&files);
    let server = ServerTls::from_files(std::slice::from_ref(&files), &ServerTlsRules::default());
    let server = server.unwrap();
    let mut held = pair(&server, &old, "localhost");
    handshake(&mut held, 4096).unwrap();

    // Half of a new pair: everything stays as it was.
    let key = std::fs::read(&files.key).unwrap();
    std::fs::write(&files.key, "no key").unwrap();
    assert!(server.reload().is_err());
    std::fs::write(&files.key, key).unwrap();
    handshake(&mut pair(&server, &old, "localhost"), 4096).unwrap();

    written(folder.path(), "server", &names);
    // Of a clone, as a worker has it.
    server.clone().reload().unwrap();
    assert!(handshake(&mut pair(&server, &old, "localhost"), 4096).is_err());
    handshake(&mut pair(&server, &trusting(&files), "localhost"), 4096).unwrap();
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    held.client.write(b"still here", &mut wire);
    held.server.open(&mut wire, &mut plain, false).unwrap();
    assert_eq!(plain, b"still here");
}

#[test]
fn clients_show_certificates_where_they_have_to() {
    let folder = tempfile::tempdir().unwrap();
    let (known, stranger) = (
        written(folder.path(), "known", &["client"]),
        written(folder.path(), "stranger", &["client"]),
    );
    let showing = |files: Option<&CertificateFiles>| {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(ClientTls::new(&Trust::Anyone).unwrap().verifier());
        let config = match files {
            None => builder.with_no_client_auth(),
            Some(files) => {
                use rustls::pki_types::PrivateKeyDer;
                use rustls::pki_types::pem::PemObject;
                let chain = certificates::certificates(&files.certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        ClientTls::with_config(config)
    };
    for is_required in [true, false] {
        let rules = ServerTlsRules {
            clients: Some(ClientCertificates {
                authorities: known.certificate.clone(),
                is_required,
            }),
            ..ServerTlsRules::default()
        };
        let server = ServerTls::self_signed_with(&rules).unwrap();
        let outcome = |files| handshake(&mut pair(&server, &showing(files), "localhost"), 4096);
        outcome(Some(&known)).unwrap();
        assert_eq!(outcome(None).is_err(), is_required);
        assert!(outcome(Some(&stranger)).is_err());
    }
}
