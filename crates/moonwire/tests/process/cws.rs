//! Services that connect to other servers.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::{Server, certificate};
use crate::tungstenite::{Echo, acceptor};

/// A server that nobody here wrote, over ws:// and wss://.
#[test]
fn a_service_talks_to_a_foreign_server() {
    for is_secure in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let files = certificate::write(folder.path());
        let echo = Echo::start(is_secure.then(|| acceptor(&files)));
        let toml = format!(
            "[server]\nworkers = 1\n[client_tls]\nca = 'certificate.pem'\n\
             [services.echo]\ntarget = '/echo'\n\
             [services.caller]\nstandalone = true\npreload = ['cws']\nconfig = {{ url = '{}' }}\n",
            echo.url
        );
        let file = folder.path().join("moonwire.toml");
        fs::write(&file, toml).unwrap();
        app(folder.path(), "caller", CALLER);
        let server = Server::moonwire(&["--config", file.to_str().unwrap()]);
        loop {
            let line = server.next_line();
            assert!(!line.contains("ERROR"), "{line}");
            if line == "the dialogue is over" {
                break;
            }
        }
        assert_eq!(server.terminate().code(), Some(0));
    }
}

/// The benchmark of LAppS as its contract has it: a server with its echo, and another one, with
/// services that it calls internal, which load it and count.
#[test]
fn the_benchmark_counts_messages() {
    let certs = tempfile::tempdir().unwrap();
    certificate::write_as_lapps(certs.path());
    for is_secure in [false, true] {
        let target = installation(certs.path(), is_secure, &[]);
        let target = Server::moonwire(&["--lapps", target.path().to_str().unwrap()]);
        assert_eq!(target.url.starts_with("wss://127.0.0.1:"), is_secure);
        let code = BENCHMARK.replace("TARGET", &format!("{}/echo", target.url));
        let home = installation(certs.path(), false, &[("benchmark", &code)]);
        let server = Server::moonwire(&["--lapps", home.path().to_str().unwrap()]);
        let (mut counts, mut opened, mut warnings) = (Vec::new(), 0, 0);
        while counts.len() < 6 {
            let line = server.next_line();
            assert!(!line.contains("ERROR"), "{line}");
            opened += u32::from(line == "Sockets connected: 20");
            warnings += u32::from(line.contains("does not check the name in the certificate"));
            if let Some((count, _)) = line.split_once(" messages receved per ") {
                counts.push(count.parse::<u64>().unwrap());
            }
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert_eq!(opened, 2, "each instance has its own");
        assert_eq!(warnings, u32::from(is_secure));
        assert_eq!(server.terminate().code(), Some(0));
        assert_eq!(target.terminate().code(), Some(0));
    }
}

/// An installation of LAppS with echo and with these, each of them two instances.
fn installation(certs: &Path, is_secure: bool, services: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("etc/conf");
    fs::create_dir_all(&conf).unwrap();
    let certs = certs.display();
    let ws = format!(
        r#"{{"listeners": 1, "ip": "127.0.0.1", "port": 0, "tls": {is_secure},
            "tls_server_version": 4, "tls_client_version": 4, "workers": {{"workers": 1}},
            "tls_certificates": {{"ca": "{certs}/localhost.ca.pem",
                "cert": "{certs}/localhost.crt", "key": "{certs}/localhost.key"}}}}"#
    );
    fs::write(conf.join("ws.json"), ws).unwrap();
    app(folder.path(), "echo", ECHO);
    let mut tables = vec![
        r#""echo": {"internal": false, "instances": 1, "auto_start": true, "protocol": "raw",
            "request_target": "/echo", "max_inbound_message_size": 16777216}"#
            .to_owned(),
    ];
    for (name, code) in services {
        app(folder.path(), name, code);
        tables.push(format!(
            r#""{name}": {{"internal": true, "instances": 2, "auto_start": true,
                "depends": ["echo"], "preload": ["cws", "time", "nap"]}}"#
        ));
    }
    let lapps = format!(r#"{{"services": {{{}}}}}"#, tables.join(","));
    fs::write(conf.join("lapps.json"), lapps).unwrap();
    folder
}

fn app(folder: &Path, name: &str, code: &str) {
    let app = folder.join("apps").join(name);
    fs::create_dir_all(&app).unwrap();
    fs::write(app.join(format!("{name}.lua")), code).unwrap();
}

const CALLER: &str = r#"
local caller = {}
local url = require("moonwire.config").url
local sent = { { "Grüße", 1 }, { "a\0b\255", 2 }, { "", 1 }, { ("x"):rep(1048576), 2 } }

function caller.init() end

function caller.run()
  local got, ended = 0, false
  local function say(handler)
    assert(cws:send(handler, sent[got + 1][1], sent[got + 1][2]))
  end
  local socket = assert(cws:new(url, {
    onopen = say,
    onmessage = function(handler, data, opcode)
      got = got + 1
      assert(data == sent[got][1] and opcode == sent[got][2], got)
      if sent[got + 1] then
        say(handler)
      end
    end,
    onerror = function(handler, text) error(text) end,
    onclose = function(handler, payload) error("it was closed") end,
  }))
  while got < #sent and not must_stop() do
    cws:eventLoop()
  end
  socket:close()
  cws:eventLoop()
  print("the dialogue is over")
end

return caller
"#;

const BENCHMARK: &str = r#"
local benchmark = {}
local counted, since = 0, time.now()

local function count()
  counted = counted + 1
  local slice = time.now() - since
  if slice >= 100 then
    print(counted .. " messages receved per " .. slice .. "ms")
    counted, since = 0, time.now()
  end
end

benchmark.init = function() end

benchmark.run = function()
  nap:new():usleep(1000)
  local sockets = {}
  for i = 0, 19 do
    local socket, problem = cws:new("TARGET", {
      onopen = function(handler)
        local sent, text = cws:send(handler, ("X"):rep(64), 2)
        if not sent then print("ERROR at " .. handler .. ": " .. text) end
      end,
      onmessage = function(handler, message, opcode)
        count()
        cws:send(handler, message, opcode)
      end,
      onerror = function(handler, text) print("ERROR at " .. handler .. ": " .. text) end,
      onclose = function(handler) end,
    })
    if socket ~= nil then
      table.insert(sockets, socket)
    else
      print("ERROR: " .. problem)
    end
    if i % 10 == 0 then cws:eventLoop() end
  end
  print("Sockets connected: " .. #sockets)
  since = time.now()
  while not must_stop() do
    cws:eventLoop()
  end
  for i = 1, #sockets do
    sockets[i]:close()
    cws:eventLoop()
  end
  collectgarbage()
end

return benchmark
"#;

const ECHO: &str = "
local echo = {}
function echo.onStart() end
function echo.onShutdown() end
function echo.onDisconnect(handler) end
function echo.onMessage(handler, opcode, message)
  return ws:send(handler, opcode, message)
end
return echo
";
