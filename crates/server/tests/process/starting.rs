//! Which services start, in which order, and what one that cannot start means for the others.

use std::fmt::Write;

use crate::client::Client;
use crate::fixture::Folder;

/// Each of them cannot be started, for a reason of its own.
const BROKEN: [(&str, &str); 8] = [
    ("syntax", "function ("),
    ("no_table", "return 5"),
    ("raises", "error('on purpose')"),
    ("no_callback", "return {onStart = function() end}"),
    (
        "start",
        "return {onStart = function() error('on purpose') end, onShutdown = print,
        onMessage = print, onDisconnect = print}",
    ),
    ("requires", "require('no.such.module')"),
    ("no_init", "return {run = function() end}"),
    ("no_run", "return {init = function() end}"),
];

fn tables(skip: bool) -> String {
    let mut toml = String::from("[server]\nworkers = 2\n");
    if skip {
        toml.push_str("on_broken_service = 'skip'\n");
    }
    toml.push_str("[services.echo]\ntarget = '/echo'\n");
    for (name, _) in BROKEN {
        let kind = match name {
            "no_init" | "no_run" => "standalone = true".to_owned(),
            _ => format!("target = '/{name}'"),
        };
        writeln!(toml, "[services.{name}]\n{kind}").unwrap();
    }
    toml
}

#[test]
fn broken_services_are_skipped_if_it_is_asked_for() {
    // The last one has no file.
    let folder = Folder::new(&(tables(true) + "[services.missing]\ntarget = '/missing'\n"));
    let folder = BROKEN
        .iter()
        .fold(folder, |folder, (name, code)| folder.app(name, code));
    let server = folder.start();
    let mut echo = server.connect("/echo");
    let names = BROKEN[..6].iter().map(|(name, _)| *name);
    for name in names.chain(["missing"]) {
        let refused = Client::upgrade(server.address, &format!("/{name}"), "");
        assert_eq!(
            refused.map(|(_, head)| head).unwrap_err().status,
            503,
            "{name}"
        );
        assert_eq!(echo.ask(name).text(), name);
    }
    assert_eq!(
        server.metric("moonwire_handshake_failures_total", "broken"),
        7
    );
}

#[test]
fn a_broken_service_stops_the_start_otherwise() {
    for (name, code) in BROKEN {
        let toml = tables(false);
        let table = toml.find(&format!("[services.{name}]")).unwrap();
        let kind = toml[table..].lines().nth(1).unwrap();
        let folder = Folder::new(&format!(
            "[services.echo]\ntarget = '/echo'\n[services.{name}]\n{kind}\n"
        ))
        .app(name, code);
        match moonwire_server::Server::start(folder.load().unwrap()) {
            Ok(_) => panic!("{name} starts"),
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
        }
    }
}

/// Each writes its name into a queue as it starts; the last one sends what it finds there.
#[test]
fn services_start_behind_those_that_they_depend_on() {
    let server = Folder::new(
        "[server]\nworkers = 1\n\
         [services.a]\ntarget = '/a'\npreload = ['mqr']\ndepends = ['c', 'b']\n\
         [services.b]\ntarget = '/b'\npreload = ['mqr']\ndepends = ['d']\n\
         [services.c]\nstandalone = true\npreload = ['mqr']\ndepends = ['e']\n\
         [services.d]\nstandalone = true\npreload = ['mqr']\ndepends = ['c']\n\
         [services.e]\nstandalone = true\npreload = ['mqr']\nauto_start = false\n\
         [services.f]\nstandalone = true\npreload = ['mqr']\nauto_start = false\n\
         [services.g]\nstandalone = true\npreload = ['mqr']\ndepends = ['a']\n",
    )
    .app("a", &reactive("a"))
    .app("b", &reactive("b"))
    .app("c", &standalone("c"))
    .app("d", &standalone("d"))
    .app("e", &standalone("e"))
    .app("f", &standalone("f"))
    .app("g", &standalone("g"))
    .start();
    let mut client = server.connect("/a");
    let order: Vec<_> = (0..6)
        .map(|_| client.ask("next").text().to_owned())
        .collect();
    assert_eq!(order, ["e", "c", "d", "b", "a", "g"]);
    assert_eq!(client.ask("next").text(), "nothing");
}

/// Each instance of the first takes its time; no instance of the second starts before all of those
/// have, on whichever worker they are.
#[test]
fn instances_on_other_workers_have_started_too() {
    let server = Folder::new(
        "[server]\nworkers = 3\n\
         [services.a]\ntarget = '/a'\npreload = ['mqr']\ndepends = ['b']\n\
         [services.b]\ntarget = '/b'\npreload = ['mqr', 'nap']\n",
    )
    .app(
        "b",
        &reactive("b").replace(
            "onStart = function()",
            "onStart = function() nap:new():usleep(30000)",
        ),
    )
    .app("a", &reactive("a"))
    .start();
    let mut client = server.connect("/a");
    let order: Vec<_> = (0..6)
        .map(|_| client.ask("next").text().to_owned())
        .collect();
    assert_eq!(order, ["b", "b", "b", "a", "a", "a"]);
}

fn standalone(name: &str) -> String {
    format!(
        "{POST}
        return {{init = function() post('{name}') end, run = function() end}}"
    )
}

fn reactive(name: &str) -> String {
    format!(
        "{POST}
        return {{
            onStart = function() post('{name}') end, onShutdown = function() end,
            onDisconnect = function() end,
            onMessage = function(h, o, m)
                local posted = queue:try_recv()
                return ws:send(h, 1, posted and posted.name or 'nothing')
            end,
        }}"
    )
}

const POST: &str = "
local queue = mqr.create('started')
local function post(name)
    local message = nljson.decode('{}')
    message.name = name
    assert(queue:post(message))
end";
