use std::fs;

use tempfile::TempDir;

use super::*;
use crate::config::{Config, Overrides};

fn home(ws: Option<&str>, lapps: Option<&str>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("etc/conf");
    fs::create_dir_all(&conf).unwrap();
    for (name, text) in [("ws.json", ws), ("lapps.json", lapps)] {
        if let Some(text) = text {
            fs::write(conf.join(name), text).unwrap();
        }
    }
    for name in ["echo", "clock"] {
        let app = folder.path().join("apps").join(name);
        fs::create_dir_all(&app).unwrap();
        fs::write(app.join(format!("{name}.lua")), "return {}").unwrap();
    }
    folder
}

fn convert(folder: &TempDir) -> Result<LappsConversion, String> {
    let home = LappsHome::with(Some(folder.path()), |_| None);
    home.convert().map_err(|error| error.to_string())
}

const LAPPS: &str = r#"{
    "directories": {"applications": "apps", "deploy": "deploy"},
    "services": {
        "echo": {
            "internal": false, "instances": 3, "auto_start": true, "protocol": "raw",
            "request_target": "/echo", "max_inbound_message_size": 1000, "preload": null,
            "depends": ["clock", "nobody"], "proto_alias": "echo.v1",
            "acl": {"policy": "deny", "exclude": ["192.168.13.13/24"]},
            "extra_headers": {"Strict-Transport-Security": "max-age=31536000"}
        },
        "clock": {
            "standalone": true, "instances": 1, "auto_start": false, "preload": ["nap", "gone"]
        }
    }
}"#;

const WS: &str = r#"{
    "listeners": 2, "connection_weight": 0.5, "ip": "127.0.0.1", "port": 0, "tls": false,
    "tls_server_version": 3, "lapps_config_auto_save": true, "odd": 1,
    "workers": {"workers": 3, "max_connections": 100, "auto_fragment": true, "preads": 4},
    "acl": {"policy": "allow", "exclude": []},
    "tls_certificates": {"ca": "a", "cert": "b", "key": "c"}
}"#;

#[test]
fn both_files_become_one_configuration() {
    let folder = home(Some(WS), Some(LAPPS));
    let home = LappsHome::with(Some(folder.path()), |_| None);
    let conversion = home.convert().unwrap();
    let config = Config::lapps(&conversion, &Overrides::default()).unwrap();
    let remarks = conversion.remarks;
    assert_eq!(conversion.apps, folder.path().join("apps"));
    assert_eq!((config.workers, config.listen.len()), (3, 1));
    assert!(config.tls.is_none());
    let limits = &config.limits;
    assert_eq!(limits.connections_per_worker_max, 100);
    assert_eq!((limits.busy_status, limits.fragment_bytes), (403, 1392));
    let [echo] = &config.services[..] else {
        panic!("one service has clients");
    };
    assert_eq!(
        (&*echo.name, &*echo.target, echo.instances),
        ("echo", "/echo", 3)
    );
    assert_eq!(echo.message_bytes_max, 1000);
    assert_eq!(echo.subprotocol.as_deref(), Some("echo.v1"));
    assert!(echo.is_subprotocol_forced);
    assert!(!echo.has_handshake_hook);
    assert!(echo.acl.admits("192.168.13.200".parse().unwrap()));
    assert!(!echo.acl.admits("192.168.14.1".parse().unwrap()));
    assert_eq!(echo.extra_headers.len(), 1);
    let [clock] = &config.standalone[..] else {
        panic!("another one depends on it");
    };
    assert_eq!(clock.preload, [moonwire_lua::Module::Nap]);
    for ignored in [
        "`lapps_config_auto_save`",
        "`workers.preads`",
        "`odd` is no key",
        "`tls_certificates.ca`",
        "no module `gone`",
        "depends on `nobody`",
        "`directories.deploy`",
    ] {
        let named = remarks.iter().filter(|line| line.contains(ignored)).count();
        assert_eq!(named, 1, "{ignored}: {remarks:#?}");
    }
}

#[test]
fn without_files_the_defaults_of_lapps_hold() {
    let folder = home(None, None);
    let conversion = convert(&folder).unwrap();
    for line in [
        "workers = 4",
        "listen = \"0.0.0.0:5083\"",
        "connections_per_worker_max = 10000",
    ] {
        assert!(conversion.toml.contains(line), "{}", conversion.toml);
    }
    for name in ["ws.json", "lapps.json"] {
        let said = format!("{name}: there is no such file, so everything in it is as LAppS");
        let remarks = conversion.remarks.join("\n");
        assert!(remarks.contains(&said), "{remarks}");
    }
    let error = Config::lapps(&conversion, &Overrides::default()).unwrap_err();
    let sentence = "lapps.json: there is no such file, so there is no service to start";
    assert!(error.to_string().contains(sentence), "{error}");
}

#[test]
fn a_home_that_is_not_there_is_named() {
    let home = LappsHome::with(Some(Path::new("/no/such/home")), |_| None);
    let error = home.convert().unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/home: there is no such folder"),
        "{error}"
    );
}

#[test]
fn without_listeners_only_standalone_services_run() {
    let ws = WS.replace("\"listeners\": 2", "\"listeners\": 0");
    let folder = home(Some(&ws), Some(LAPPS));
    let toml = convert(&folder).unwrap().toml;
    assert!(
        toml.contains("workers = 0") && !toml.contains("[services.echo"),
        "{toml}"
    );
    assert!(toml.contains("[services.clock]"), "{toml}");
}

#[test]
fn tls_has_the_version_that_was_asked_for() {
    for (version, spoken) in [("3", "1.2"), ("4", "1.3"), ("7", "1.3")] {
        let ws = WS.replace("\"tls\": false", "\"tls\": true").replace(
            "\"tls_server_version\": 3",
            &format!("\"tls_server_version\": {version}"),
        );
        let toml = convert(&home(Some(&ws), None)).unwrap().toml;
        let table: toml::Table = toml.parse().unwrap();
        assert_eq!(table["tls"]["versions"][0].as_str(), Some(spoken));
        assert_eq!(table["tls"]["cert"].as_str(), Some("b"));
    }
}

/// Only where a service connects: the file need not be there otherwise.
#[test]
fn services_that_connect_have_the_authority_and_the_version_of_clients() {
    let lapps = LAPPS.replace(r#"["nap", "gone"]"#, r#"["nap", "cws"]"#);
    for (version, spoken) in [("3", "1.2"), ("4", "1.3")] {
        let ws = WS.replace(
            "\"tls_server_version\": 3",
            &format!("\"tls_client_version\": {version}"),
        );
        let conversion = convert(&home(Some(&ws), Some(&lapps))).unwrap();
        let table: toml::Table = conversion.toml.parse().unwrap();
        let client = &table["client_tls"];
        assert_eq!(client["ca"].as_str(), Some("a"));
        assert_eq!(client["versions"][0].as_str(), Some(spoken));
        assert_eq!(client["verify_loopback_name"].as_bool(), Some(false));
        let remarks = conversion.remarks.join("\n");
        assert!(!remarks.contains("`tls_c"), "{remarks}");
        let error = Config::lapps(&conversion, &Overrides::default()).unwrap_err();
        let sentence = "ws.json: `tls_certificates.ca` names a, which cannot be read: ";
        assert!(error.to_string().contains(sentence), "{error}");
        let toml = convert(&home(Some(&ws), Some(LAPPS))).unwrap().toml;
        assert!(!toml.contains("client_tls"), "{toml}");
    }
}

#[test]
fn what_is_wrong_is_one_sentence_with_its_key() {
    for (ws, lapps, sentence) in [
        (
            WS.replace("\"port\": 0", "\"port\": 70000"),
            LAPPS.to_owned(),
            "`port` is 70000 and must be an integer from 0 to 65535",
        ),
        (
            WS.replace("\"policy\": \"allow\"", "\"policy\": \"maybe\""),
            LAPPS.to_owned(),
            "`acl.policy` is `maybe` and must be allow or deny",
        ),
        (
            WS.replace("\"tls\": false", "\"tls\": 0"),
            LAPPS.to_owned(),
            "`tls` is 0 and must be true or false",
        ),
        (
            WS.replace("\"workers\": {", "\"workers\": 4, \"w\": {"),
            LAPPS.to_owned(),
            "`workers` is 4 and must be an object",
        ),
        (
            WS.to_owned(),
            LAPPS.replace("13.13/24", "13.13/40"),
            "`services.echo.acl.exclude`",
        ),
        (WS.to_owned(), "[]".to_owned(), "it must be a JSON object"),
        ("{".to_owned(), LAPPS.to_owned(), "it is not JSON"),
    ] {
        let error = convert(&home(Some(&ws), Some(&lapps))).unwrap_err();
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn variables_say_where_the_files_are() {
    let none = LappsHome::with(None, |_| None);
    assert_eq!(none.ws, Path::new("/opt/lapps/etc/conf/ws.json"));
    let variables = |name: &str| {
        let value = match name {
            "LAPPS_HOME" => "/srv/lapps",
            "LAPPS_CONF_DIR" => "/etc/lapps",
            "WS_CONFIG" => "w.json",
            "LAPPS_CONFIG" => "",
            _ => return None,
        };
        Some(value.into())
    };
    let all = LappsHome::with(None, variables);
    assert_eq!(all.home, Path::new("/srv/lapps"));
    assert_eq!(all.ws, Path::new("/etc/lapps/w.json"));
    assert_eq!(all.lapps, Path::new("/etc/lapps/lapps.json"));
    let asked = LappsHome::with(Some(Path::new("/here")), variables);
    assert_eq!(asked.home, Path::new("/here"));
}

/// Who starts by itself has the target, and nobody waits for who does not start.
#[test]
fn of_two_services_with_one_target_the_one_that_starts_has_it() {
    let service = |keys: &str| {
        format!(r#"{{"request_target": "/echo", "protocol": "raw", "instances": 1{keys}}}"#)
    };
    let lapps = format!(
        r#"{{"services": {{"a": {}, "b": {}, "c": {}, "d": {}}}}}"#,
        service(""),
        service(""),
        service(r#", "auto_start": false"#),
        r#"{"standalone": true, "instances": 1, "depends": ["a"]}"#
    );
    let conversion = convert(&home(Some(WS), Some(&lapps))).unwrap();
    let table: toml::Table = conversion.toml.parse().unwrap();
    let services = table["services"].as_table().unwrap();
    let names: Vec<&String> = services.keys().collect();
    assert_eq!(names, ["b", "d"], "{:?}", conversion.remarks);
    let remarks = conversion.remarks.join("\n");
    for part in [
        "`a` has the target of `b`",
        "`c` has the target of `a`",
        "`d` depends on `a`",
    ] {
        assert!(remarks.contains(part), "{part}: {remarks}");
    }
}

/// What it converts to is right elsewhere, too.
#[test]
fn a_certificate_is_needed_to_serve_and_not_to_convert() {
    let folder = home(Some(r#"{"tls": true}"#), Some(LAPPS));
    let mut conversion = convert(&folder).unwrap();
    let cert = &mut conversion.needs.certificates[0];
    assert_eq!(cert.path, "/opt/lapps/etc/ssl/certs/localhost.crt");
    cert.path = "/nowhere/localhost.crt".to_owned();
    let mut overrides = Overrides::default();
    let error = conversion.check(&overrides).unwrap_err().to_string();
    let expected = "ws.json: `tls_certificates.cert` is not there and means /nowhere/localhost.crt";
    assert!(error.contains(expected), "{error}");
    overrides.dev_tls = true;
    conversion.check(&overrides).unwrap();
}
