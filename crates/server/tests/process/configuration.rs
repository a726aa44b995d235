//! One sentence for each mistake: what is wrong, where, and what would be right.

use std::path::Path;

use moonwire_net::SpareBuffers;
use moonwire_server::{Config, OutgoingTls, Overrides, Server, Service};

use crate::fixture::Folder;

/// The file that documents every key says the truth about the defaults.
#[test]
fn the_documented_defaults_are_the_defaults() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("moonwire.toml");
    let documented = Config::load(&file, &Overrides::default()).unwrap();
    let defaults = Config::shipped(&Overrides::default()).unwrap();
    assert_eq!(documented.limits, defaults.limits);
    assert_eq!(documented.listen, defaults.listen);
    assert_eq!(
        (documented.log, documented.log_format),
        (defaults.log, defaults.log_format)
    );
    assert_eq!(
        (documented.driver, documented.tls_rules),
        (defaults.driver, defaults.tls_rules)
    );
    let targets = |config: &[Service]| config.iter().map(|s| s.target.clone()).collect::<Vec<_>>();
    assert_eq!(targets(&documented.services), targets(&defaults.services));
    // With every comment in front of a key taken away it is still understood.
    let text = std::fs::read_to_string(&file).unwrap();
    let keys = text.lines().filter(|line| !line.starts_with("# dev"));
    let keys: Vec<_> = keys
        .map(|line| if is_key(line) { &line[2..] } else { line })
        .collect();
    let folder = Folder::new(&keys.join("\n")).app("echo", "return {}");
    for name in [
        "server.crt",
        "server.key",
        "other.crt",
        "other.key",
        "clients.pem",
        "authorities.pem",
    ] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let all = folder.load().unwrap_or_else(|error| panic!("{error}"));
    assert!(all.tls.is_some() && all.services[1].subprotocol.is_some());
    let client_tls = OutgoingTls {
        ca: Some(folder.path().join("authorities.pem")),
        ..defaults.client_tls
    };
    assert_eq!(all.client_tls, client_tls);
}

fn is_key(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("# ") else {
        return false;
    };
    rest.starts_with('[') && !rest.contains("NAME")
        || rest
            .split_once(" = ")
            .is_some_and(|(key, _)| !key.contains(' '))
}

#[test]
fn a_sandbox_is_trusted_or_restricted() {
    wrong(
        "[services.echo]\ntarget = '/echo'\nsandbox = 'lua'\n",
        "moonwire.toml:3: the sandbox `lua` must be \"trusted\" or \"restricted\"",
    );
    let service = "local s = {}
        function s.onStart() end
        function s.onMessage(h, o, m) return ws:send(h, o, type(io) .. type(package)) end
        function s.onDisconnect() end
        function s.onShutdown() end
        return s";
    let clock = "assert(io == nil and not pcall(require, 'ffi'))
        return {init = function() end, run = function() end}";
    let folder = Folder::new(
        "[server]\nworkers = 1\n\
         [services.free]\ntarget = '/free'\nsandbox = 'trusted'\n\
         [services.bound]\ntarget = '/bound'\nsandbox = 'restricted'\n\
         [services.clock]\nstandalone = true\nsandbox = 'restricted'\n",
    );
    let folder = folder
        .app("free", service)
        .app("bound", service)
        .app("clock", clock);
    let memory: Vec<_> = folder.load().unwrap().services;
    let memory: Vec<_> = memory.iter().map(|s| s.memory_bytes_max).collect();
    assert_eq!(memory, [Some(256 << 20), None]);
    let server = folder.start();
    assert_eq!(server.connect("/free").ask("").text(), "tabletable");
    assert_eq!(server.connect("/bound").ask("").text(), "nilnil");
}

#[test]
fn a_log_filter_is_checked_where_it_is_written() {
    wrong(
        "[server]\nlog = 'moonwire_server=loud'\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: log = \"moonwire_server=loud\" is not a log filter (",
    );
}

#[test]
fn the_memory_of_a_service_is_not_too_little_for_any() {
    wrong(
        "[services.echo]\ntarget = '/echo'\nmemory_bytes_max = 1000\n",
        "moonwire.toml:3: memory_bytes_max = 1000 must be from 1048576 to ",
    );
}

#[test]
fn a_worker_may_hold_what_one_connection_may_at_least() {
    wrong(
        "[limits]\nmessage_bytes_max = 1000\nwrite_queue_bytes_max = 2000000\n\
         memory_bytes_per_worker_max = 1999999\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:4: memory_bytes_per_worker_max = 1999999 is less than the 2000000 bytes \
         that one connection may need here: ",
    );
}

#[test]
fn the_largest_messages_may_have_a_queue() {
    let text = "[limits]\nmessage_bytes_max = 1073741824\nwrite_queue_bytes_max = 1073741838\n\
                memory_bytes_per_worker_max = 4294967296\n\
                [services.echo]\ntarget = '/echo'\n";
    let limits = Folder::new(text).load().map(|config| config.limits);
    let limits = limits.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(limits.write_queue_bytes_max, 1_073_741_838);
}

#[test]
fn words_that_a_key_does_not_know_are_named_with_those_that_it_does() {
    let echo = "[services.echo]\ntarget = '/echo'\n";
    for (lines, sentence) in [
        (
            "[tls]\ndev = true\nversions = ['1.1']\n",
            "moonwire.toml:3: the `versions` of TLS must be \"1.2\", \"1.3\" or both",
        ),
        (
            "[tls]\ndev = true\nversions = []\n",
            "moonwire.toml:3: the `versions` of TLS must be \"1.2\", \"1.3\" or both",
        ),
        (
            "[client_tls]\nversions = ['1.1']\n",
            "moonwire.toml:2: the `versions` of TLS must be \"1.2\", \"1.3\" or both",
        ),
        (
            "[client_tls]\nca = 'missing.pem'\n",
            "moonwire.toml:2: `ca` names ",
        ),
        (
            "[services.e]\ntarget = '/e'\nbuiltin = 'reverse'\n",
            "moonwire.toml:3: builtin = \"reverse\" must be \"echo\"",
        ),
        (
            "[services.e]\ntarget = '/e'\nbuiltin = 'echo'\ninstances = 2\n",
            "moonwire.toml:1: [services.e] is built in, so it has no `instances`",
        ),
        (
            "[services.e]\nstandalone = true\nbuiltin = 'echo'\n",
            "moonwire.toml:1: [services.e] is standalone and serves no connections, so it has no \
             `builtin`",
        ),
        (
            "[limits]\nbusy_status = 404\n",
            "moonwire.toml:2: busy_status = 404 must be 503 or 403",
        ),
        (
            "[server]\non_broken_service = 'ignore'\n",
            "moonwire.toml:2: on_broken_service = \"ignore\" must be \"stop\" or \"skip\"",
        ),
        (
            "[server.acl]\npolicy = 'refuse'\n",
            "moonwire.toml:2: acl.policy = \"refuse\" must be \"allow\" or \"deny\"",
        ),
        (
            "[server.acl]\nexclude = ['10.0.0.1/8']\n",
            "moonwire.toml:2: acl.exclude: `10.0.0.1/8` has bits beyond its prefix; write \
             10.0.0.0/8",
        ),
    ] {
        wrong(&format!("{lines}{echo}"), sentence);
    }
}

#[test]
fn an_address_is_named_once() {
    wrong(
        "[server]\n\nlisten = ['127.0.0.1:5083', '[::1]:5083', '127.0.0.1:5083']\n\
         [services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:3: the address 127.0.0.1:5083 is there twice; name each address once",
    );
    wrong(
        "[server]\nlisten = ['127.0.0.1:5083', '[::ffff:127.0.0.1]:5083']\n\
         [services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: the address [::ffff:127.0.0.1]:5083 is there twice",
    );
    let overrides = |listen: [&str; 2]| Overrides {
        listen: listen.map(str::to_owned).to_vec(),
        ..Overrides::default()
    };
    let error = Config::shipped(&overrides(["127.0.0.1:1"; 2])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--listen: the address 127.0.0.1:1 is there twice; name each address once"
    );
    // Two ports of the system's choice are two ports.
    Config::shipped(&overrides(["127.0.0.1:0"; 2])).unwrap();
}

#[test]
fn unknown_keys_name_the_nearest() {
    wrong(
        "[server]\nlisen = '127.0.0.1:1'\n",
        "moonwire.toml:2: unknown key `lisen`, did you mean `listen`?",
    );
    wrong(
        "\n[limits]\nmessage_bytes = 1\n",
        "moonwire.toml:3: unknown key `message_bytes`",
    );
    wrong(
        "[servers]\n",
        "moonwire.toml:1: unknown key `servers`, did you mean `server`?",
    );
}

#[test]
fn wrong_types_name_the_key() {
    wrong(
        "[server]\nworkers = 'two'\n",
        "moonwire.toml:2: `workers` has the wrong type: string \"two\", expected a whole number",
    );
    wrong(
        "[limits]\nidle_timeout_ms = -1\n",
        "moonwire.toml:2: idle_timeout_ms = -1 must be from 0 to 86400000",
    );
    wrong(
        "[server]\nlisten = 5083\n",
        "moonwire.toml:2: `listen` has the wrong type: integer",
    );
    wrong(
        "[services.echo]\ntarget = ['/echo']\n",
        "moonwire.toml:2: `target` has the wrong type",
    );
    wrong(
        "[server]\nworkers =\n",
        "moonwire.toml:2: this is not TOML as expected here",
    );
}

#[test]
fn values_are_checked() {
    wrong(
        "[server]\nworkers = 257\n",
        "moonwire.toml:2: workers = 257 must be from 0 to 256",
    );
    wrong(
        "[server]\nworkers = 0\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: workers = 0 serves no connections, so nobody can reach `echo`",
    );
    wrong(
        "[limits]\nbacklog = 0\n",
        "moonwire.toml:2: backlog = 0 must be from 1 to 65535",
    );
    wrong(
        "[limits]\nbacklog = 99999999999\n",
        "moonwire.toml:2: backlog = 99999999999 must be from 1 to 65535",
    );
    wrong(
        "limits = { backlog = 5, message_bytes_max = -1 }\n",
        "moonwire.toml:1: message_bytes_max = -1 must be from 1 to 1073741824",
    );
    wrong(
        "[limits]\nbacklog = 99999999999999999999999\n",
        "moonwire.toml:2: `backlog` has the wrong type: integer `99999999999999999999999`, \
         expected a whole number",
    );
    wrong(
        "[services.echo]\ntarget = '/echo'\n[services.echo.deflate]\nlevel = 300\n",
        "moonwire.toml:4: level = 300 must be from 1 to 6",
    );
    wrong(
        "[services.echo]\ntarget = '/echo'\n[services.echo.deflate]\nthreshold_bytes = 200\n\
         compress_bytes_max = 199\n",
        "moonwire.toml:5: compress_bytes_max = 199 must be from 200 to 1073741824",
    );
    wrong(
        "[limits]\nwrite_queue_policy = 'wait'\n",
        "moonwire.toml:2: write_queue_policy = \"wait\" must be \"close\" or \"drop\"",
    );
    wrong(
        "[limits]\nwrite_queue_bytes_max = 1000\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: write_queue_bytes_max = 1000 is less than one largest message",
    );
    wrong(
        "[server]\nlog_format = 'json'\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: the log format",
    );
    wrong(
        "[server]\ndriver = 'iouring'\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: driver = \"iouring\" must be \"auto\", \"epoll\" or \"io_uring\"",
    );
    wrong(
        "[server]\ntls_records = 'openssl'\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:2: tls_records = \"openssl\" must be \"own\" or \"rustls\"",
    );
    wrong(
        "[tls]\ncert = 'c.pem'\n[services.echo]\ntarget = '/echo'\n",
        "moonwire.toml:1: [tls] has a `cert` but no `key`",
    );
    wrong(
        "[services.echo]\ntarget = '/echo'\n[tls]\ncert = 'c.pem'\nkey = 'k.pem'\n",
        "moonwire.toml:4: `cert` names ",
    );
    wrong("", "moonwire.toml:1: there is no service");
}

#[test]
fn limits_are_checked() {
    for (line, sentence) in [
        (
            "connections_per_source_max = 268435457",
            "connections_per_source_max = 268435457 must be from 0 to 268435456",
        ),
        (
            "handshakes_per_source_per_s_max = 1000001",
            "handshakes_per_source_per_s_max = 1000001 must be from 0 to 1000000",
        ),
        (
            "handshakes_per_worker_max = 0",
            "handshakes_per_worker_max = 0 must be from 1 to 1048576",
        ),
        (
            "source_limits_exempt = ['10.0.0.0/8', '10.0.0.1/8']",
            "source_limits_exempt: `10.0.0.1/8` has bits beyond its prefix; write 10.0.0.0/8",
        ),
        (
            "source_limits_exempt = '127.0.0.1'",
            "`source_limits_exempt` has the wrong type: string \"127.0.0.1\", expected a list",
        ),
        (
            "write_timeout_ms = 0",
            "write_timeout_ms = 0 must be from 1 to 86400000",
        ),
        (
            "message_timeout_ms = 86400001",
            "message_timeout_ms = 86400001 must be from 0 to 86400000",
        ),
        (
            "send_buffer_bytes = 4095",
            "send_buffer_bytes = 4095 must be from 4096 to 1073741823, or 0: the kernel chooses",
        ),
        (
            "spare_buffers_per_worker_max = 1048577",
            "spare_buffers_per_worker_max = 1048577 must be from 0 to 1048576",
        ),
        (
            "spare_buffer_bytes_max = 0",
            "spare_buffer_bytes_max = 0 must be from 1 to 1073741824",
        ),
        (
            "spare_buffer_bytes_max = 1073741825",
            "spare_buffer_bytes_max = 1073741825 must be from 1 to 1073741824",
        ),
        ("nodelay = 1", "`nodelay` has the wrong type: "),
        (
            "connection_memory_bytes_max = 17825791",
            "connection_memory_bytes_max = 17825791 is less than the ",
        ),
        (
            "connection_memory_bytes_max = 3145727\nmessage_bytes_max = 1\n\
             header_bytes_max = 1048576",
            "connection_memory_bytes_max = 3145727 is less than the 3145728 bytes",
        ),
        (
            "connection_memory_bytes_max = 100000000\nmemory_bytes_per_worker_max = 90000000",
            "connection_memory_bytes_max = 100000000 is more than memory_bytes_per_worker_max",
        ),
        (
            "write_queue_bytes_per_worker_max = 1073741824",
            "unknown key `write_queue_bytes_per_worker_max`, did you mean ",
        ),
    ] {
        let toml = format!("[limits]\n{line}\n[services.echo]\ntarget = '/echo'\n");
        wrong(&toml, &format!("moonwire.toml:2: {sentence}"));
    }
}

#[test]
fn limits_fit_together_by_themselves() {
    let limits = |lines: &str| {
        let toml = format!("[limits]\n{lines}\n[services.echo]\ntarget = '/echo'\n");
        let config = Folder::new(&toml).load();
        config.unwrap_or_else(|error| panic!("{error}")).limits
    };
    let large = limits("message_bytes_max = 1073741824");
    assert!(large.memory_bytes_per_worker_max >= large.connection_memory_bytes_max);
    assert!(large.connection_memory_bytes_max > large.write_queue_bytes_max + (1 << 30));
    let little = limits("memory_bytes_per_worker_max = 70000000");
    assert_eq!(little.connection_memory_bytes_max, 70_000_000);
    let much = limits("connection_memory_bytes_max = 5000000000");
    assert_eq!(much.memory_bytes_per_worker_max, 5_000_000_000);
    let off = limits(
        "connections_per_source_max = 0\nhandshakes_per_source_per_s_max = 0\n\
         source_limits_exempt = []\nmessage_timeout_ms = 0",
    );
    let spare = limits("spare_buffers_per_worker_max = 1048576\nspare_buffer_bytes_max = 1");
    let SpareBuffers {
        buffers_max,
        buffer_bytes_max,
    } = spare.spare_buffers;
    assert_eq!((buffers_max, buffer_bytes_max), (1_048_576, 1));
    assert!(off.source_limits_exempt.is_empty() && off.message_timeout.is_zero());
}

#[test]
fn origins_are_checked() {
    wrong(
        "[server]\nallowed_origins = ['https://a.example', 'app.example.com']\n",
        "moonwire.toml:2: allowed_origins: `app.example.com` is not an origin; write ",
    );
    wrong(
        "[services.echo]\ntarget = '/echo'\nallowed_origins = ['null']\n",
        "moonwire.toml:3: allowed_origins: `null` is not an origin",
    );
}

#[test]
fn services_are_checked() {
    wrong(
        "[services.echo]\ntarget = 'echo'\n",
        "moonwire.toml:2: the target `echo` must be a path",
    );
    wrong(
        "[services.echo]\ntarget = '/health'\n",
        "moonwire.toml:2: the target `/health` is answered",
    );
    wrong(
        "[services.echo]\n",
        "moonwire.toml:1: [services.echo] has no `target`; add target = \"/echo\"",
    );
    wrong(
        "[services.amplify]\ntarget = '/x'\n[services.echo]\ntarget = '/x'\n",
        "moonwire.toml:4: the target `/x` of `echo` is already that of `amplify`",
    );
    wrong(
        "[services.chat]\ntarget = '/chat'\n",
        "moonwire.toml:1: the service `chat` has no file ",
    );
    wrong(
        "[services.echo]\ntarget = '/echo'\n[services.echo.extra_headers]\nUpgrade = 'h2c'\n",
        "moonwire.toml:4: the header `Upgrade` belongs to the handshake",
    );
}

#[test]
fn addresses_are_checked() {
    let (echo, ticker) = ("echo]\ntarget = '/echo'", "ticker]\nstandalone = true");
    for (more, service, line) in [("", echo, 2), ("workers = 0\n", ticker, 3)] {
        let listen = "listen = ['127.0.0.1:1', 'localhost']";
        let text = format!("[server]\n{more}{listen}\n[services.{service}\n");
        let folder = Folder::new(&text).app("ticker", "return {}");
        let error = Config::load(&folder.path().join("moonwire.toml"), &Overrides::default());
        let sentence = error.unwrap_err().to_string();
        let expected = format!("moonwire.toml:{line}: `localhost` is not an address");
        assert!(sentence.contains(&expected), "{sentence}");
    }
}

#[test]
fn scripts_are_checked_without_serving() {
    script("local chat = {\nfunction chat.", &["chat.lua:", "chat"]);
    script(
        "local chat = {}\nfunction chat.onStart() end\nreturn chat\n",
        &["chat.lua", "onMessage"],
    );
    script("error('no luck today')\n", &["chat.lua:1", "no luck today"]);
    script("return 7\n", &["chat.lua", "table"]);
}

#[test]
fn a_port_in_use_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    assert!(
        start_at(address)
            .unwrap_err()
            .contains(&format!("listens on {address}"))
    );
    // A server of our own shares its port with nobody either, though its workers do.
    let first = start_at("127.0.0.1:0".parse().unwrap()).unwrap();
    let refused = start_at(first.addresses()[0]);
    assert!(refused.unwrap_err().contains("another program listens"));
    first.stopper().stop();
    first.wait().unwrap();
}

fn start_at(address: std::net::SocketAddr) -> Result<Server, String> {
    let overrides = Overrides {
        listen: vec![address.to_string()],
        workers: Some(2),
        ..Overrides::default()
    };
    Server::start(Config::shipped(&overrides).unwrap()).map_err(|error| error.to_string())
}

/// The whole error is one line, which has `sentence` behind the folder.
fn wrong(toml: &str, sentence: &str) {
    let error = Folder::new(toml)
        .load()
        .map(|_| ())
        .unwrap_err()
        .to_string();
    let found = error
        .find("moonwire.toml")
        .map_or(&*error, |start| &error[start..]);
    assert!(
        found.starts_with(sentence),
        "\n  found: {found}\nwanted: {sentence}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

fn script(lua: &str, parts: &[&str]) {
    let folder = Folder::new("[services.chat]\ntarget = '/chat'\n").app("chat", lua);
    let error = Server::check(&folder.load().unwrap())
        .unwrap_err()
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
}
