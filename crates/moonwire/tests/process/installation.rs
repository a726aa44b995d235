//! An installation of LAppS with services as its users write them, and run unmodified.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apps::client::Client;
use crate::apps::dialogue;
use crate::harness::{Server, moonwire_aside, root};

/// The files of each service, of those that ship and of those that only a test needs.
const SHIPPED: [(&str, &str); 7] = [
    ("echo", "echo/echo.lua"),
    ("echo_lapps", "echo_lapps/echo_lapps.lua"),
    ("echo_lapps", "echo_lapps/lapps_echo_maps.lua"),
    ("echo_lapps", "echo_lapps/lapps_echo_methods.lua"),
    ("time_broadcast", "time_broadcast/time_broadcast.lua"),
    ("mqr_sender", "mqr/mqr_sender.lua"),
    ("mqr_receiver", "mqr/mqr_receiver.lua"),
];
const WRITTEN: [(&str, &str, &str); 3] = [
    ("broadcast_blob", "broadcast_blob.lua", BROADCAST_BLOB),
    ("quirks", "quirks.lua", QUIRKS),
    ("quirks", "old_style.lua", OLD_STYLE),
];

/// A folder as LAppS has it in /opt.
fn home(threads: usize, services: &Value) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let path = |part: &str| home.path().join(part);
    for folder in ["etc/conf", "deploy", "tmp", "workdir"] {
        fs::create_dir_all(path(folder)).unwrap();
    }
    for (service, file) in SHIPPED {
        let name = Path::new(file).file_name().unwrap();
        let folder = path("apps").join(service);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(root().join("apps").join(file), folder.join(name)).unwrap();
    }
    for (service, file, text) in WRITTEN {
        let folder = path("apps").join(service);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }
    let ws = json!({
        "listeners": threads, "connection_weight": 1.0, "ip": "127.0.0.1", "port": 5083,
        "lapps_config_auto_save": true, "tls": false, "tls_server_version": 3,
        "tls_client_version": 4,
        "tls_certificates": {"ca": "ca.pem", "cert": "localhost.crt", "key": "localhost.key"},
        "workers": {"workers": threads, "max_connections": 10000, "auto_fragment": false,
            "max_poll_events": 300, "max_poll_wait_ms": 10, "max_inbounds_skip": 50,
            "input_buffer_size": 2048, "preads": 4},
        "acl": {"policy": "allow", "exclude": []},
    });
    let lapps = json!({
        "directories": {"applications": "apps", "app_conf_dir": "etc", "tmp": "tmp",
            "workdir": "workdir", "deploy": "deploy"},
        "services": services,
    });
    fs::write(path("etc/conf/ws.json"), ws.to_string()).unwrap();
    fs::write(path("etc/conf/lapps.json"), lapps.to_string()).unwrap();
    home
}

/// A service with connections, as descriptors before 0.9 had it.
fn reactive(protocol: &str, target: &str, more: Value) -> Value {
    let mut service = json!({
        "internal": false, "instances": 2, "auto_start": true, "request_target": target,
        "protocol": protocol, "max_inbound_message_size": 16_777_216, "preload": null,
        "acl": {"policy": "allow", "exclude": []}, "extra_headers": {"X-Service": "LAppS"},
    });
    let members = service.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    service
}

/// A standalone service; one that does not start by itself starts for those that depend on it.
fn standalone(key: &str, auto_start: bool, more: Value) -> Value {
    let mut service = json!({key: true, "instances": 1, "auto_start": auto_start});
    let members = service.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    service
}

#[test]
fn services_of_lapps_run_unmodified() {
    let nap = json!({"preload": ["nap"]});
    let home = home(
        2,
        &json!({
            "echo": reactive("raw", "/echo", json!({"proto_alias": "echo.v1"})),
            "echo_lapps": reactive("LAppS", "/echo_lapps",
                json!({"depends": ["time_broadcast", "broadcast_blob", "placeholder"]})),
            "time_broadcast": standalone("standalone", false, nap.clone()),
            "broadcast_blob": standalone("internal", false, nap),
            "quirks": reactive("raw", "/quirks", json!({"preload": ["time", "murmur", "unheard"]})),
            "placeholder": {"standalone": true, "instances": 0, "auto_start": false},
        }),
    );
    let server = Server::moonwire(&["--lapps", home.path().to_str().unwrap()]);
    let mut echo = Client::offering(&server, "/echo", Some("echo.v1"));
    echo.say(json!("Grüße 🌙"));
    assert_eq!(echo.hear(), json!("Grüße 🌙"));
    dialogue::hold(&server);
    hear_a_blob(&server);
    for _ in 0..2 {
        let mut client = Client::connect(&server, "/quirks");
        for number in 1..3 {
            client.say(json!("any"));
            assert_eq!(client.hear(), json!({"messages": f64::from(number)}));
        }
    }
    assert_eq!(server.terminate().code(), Some(0));
}

fn hear_a_blob(server: &Server) {
    let mut client = Client::connect(server, "/echo_lapps");
    let key = dialogue::log_in(&mut client, "guest");
    client
        .tell(&json!({"lapps": 1, "cid": 6, "method": "subscribe", "params": [{"authkey": key}]}));
    let blob = json!([1, 2, 3, 4, 5, "b".repeat(4483)]);
    assert_eq!(client.listen(), Ok(json!({"cid": 6, "message": blob})));
}

#[test]
fn without_listeners_and_workers_what_is_standalone_runs() {
    let home = home(
        0,
        &json!({
            "echo": reactive("raw", "/echo", json!({})),
            "mqr_sender": standalone("standalone", false, json!({"preload": ["mqr"]})),
            "mqr_receiver": standalone("internal", true,
                json!({"preload": ["mqr", "time"], "depends": ["mqr_sender"], "instances": 2})),
        }),
    );
    let mut command = moonwire_aside();
    command.args(["serve", "--lapps"]).arg(home.path());
    let (server, _) = Server::start_until(&mut command, "service mqr_receiver runs (instances 2)");
    server.await_line(" ms");
    assert_eq!(server.terminate().code(), Some(0));
}

const BROADCAST_BLOB: &str = r#"
broadcast_blob = {}
broadcast_blob.__index = broadcast_blob

broadcast_blob["init"] = function()
  bcast:create(2000)
end

broadcast_blob["run"] = function()
  local oon = nljson.decode('{"cid": 6, "message": [1, 2, 3, 4, 5]}')
  oon.message[6] = string.rep("b", 4483)
  local n = nap:new()
  while not must_stop() do
    bcast:send(2000, oon)
    n:usleep(200000)
  end
end

return broadcast_blob
"#;

/// What services of LAppS get used to, and would not notice until it is gone.
const QUIRKS: &str = r#"
require("old_style")
local started = time.now()

quirks = {}
quirks.__index = quirks
maps = { clients = nljson.decode('{}') }

quirks["onStart"] = function()
  assert(instance_id == nil or type(instance_id) == "string")
  print("quirks::onStart")
end

quirks["onShutdown"] = function()
  print("quirks::onShutdown")
end

quirks["onDisconnect"] = function(handler)
  assert(nljson.erase(maps.clients, tostring(handler)))
  assert(not nljson.erase(maps.clients, tostring(handler)))
end

quirks["onMessage"] = function(handler, opcode, message)
  assert(bcast == nil and must_stop == nil)
  assert(os.getenv("LAPPS_APPS_DIR"):sub(-1) == "/")
  assert(time.now() >= started and #murmur.hashstr("x") >= 16)
  if nljson.find(maps.clients, handler) == nil then
    maps.clients[tostring(handler)] = { messages = 0, list = {}, gone = print }
  end
  local client = nljson.find(maps.clients, handler)
  -- A write to what is within shows in the root.
  client.messages = client.messages + 1
  client.list[3] = { nested = true }
  local root = nljson.decode(nljson.encode(maps.clients))
  local same = nljson.find(root, handler)
  assert(same.messages == client.messages and same.gone == nil)
  assert(nljson.typename(same.list) == "array" and same.list[1] == nil and same.list[3].nested)
  assert(nljson.empty(nljson.from_cbor(nljson.to_cbor(nljson.decode("[]")))))
  local answer = nljson.decode("{}")
  answer.copy = client
  answer.copy.messages = -1
  answer.messages = client.messages
  nljson.erase(answer, "copy")
  assert(old_style.sum(unpack({ 1, 2, 3 })) == 6)
  assert(old_style.evaluate("return x", { x = 5 }) == 5)
  return ws:send(handler, opcode, nljson.encode(answer))
end

return quirks
"#;

/// A module of Lua 5.1.
const OLD_STYLE: &str = r#"
module("old_style", package.seeall)

function sum(...)
  local total = 0
  for i = 1, table.getn({ ... }) do
    total = total + select(i, ...)
  end
  return total
end

function evaluate(text, environment)
  return setfenv(loadstring(text), environment)()
end
"#;
