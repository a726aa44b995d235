use moonwire_lua::{Fault, Instance, LoadOptions, ScriptError, ServiceSource};

use crate::harness::{Service, folder, service};

/// Loads these files as the service `s`, which must fail.
fn refused(files: &[(&str, &str)]) -> ScriptError {
    let result = Service::try_load(files, &LoadOptions::default());
    result.map(|_| ()).unwrap_err()
}

/// The sentence without the folder, which is another one in each run.
fn sentence(files: &[(&str, &str)]) -> String {
    let text = refused(files).to_string();
    let start = text.find('/').unwrap_or(text.len());
    let end = text.rfind("/s.lua").map_or(start, |end| end + 1);
    format!("{}{}", &text[..start.min(end)], &text[end..])
}

#[test]
fn a_missing_file() {
    let error = refused(&[("other.lua", "return {}")]);
    assert_eq!(error.fault(), Fault::Configuration);
    assert_eq!(sentence(&[]), "service \"s\": s.lua does not exist");
}

#[test]
fn a_folder_in_place_of_the_file() {
    let error = refused(&[("s.lua/x", "")]);
    assert!(
        error.to_string().contains("s.lua cannot be read: "),
        "{error}"
    );
}

#[test]
fn a_syntax_error_has_its_line() {
    let error = refused(&[("s.lua", "local s = {}\n\nreturn s s\n")]);
    assert_eq!((error.fault(), error.line()), (Fault::Script, Some(3)));
    assert!(matches!(error, ScriptError::Syntax { .. }), "{error:?}");
    assert_eq!(
        sentence(&[("s.lua", "local s = {}\n\nreturn s s\n")]),
        "service \"s\": s.lua:3: '<eof>' expected near 's'"
    );
}

#[test]
fn bytecode_is_refused() {
    let error = refused(&[("s.lua", "\x1bLJ\x02\n")]);
    assert!(matches!(error, ScriptError::Syntax { .. }), "{error:?}");
}

#[test]
fn a_file_that_returns_no_table() {
    assert_eq!(
        sentence(&[("s.lua", "s = {}")]),
        "service \"s\": s.lua returns nil, not a table: end it with the table of the service, \
         like `return s`"
    );
    let error = refused(&[("s.lua", "return 5")]).to_string();
    assert!(error.contains("returns a number, not a table"), "{error}");
}

#[test]
fn every_callback_must_be_there() {
    for callback in ["onStart", "onMessage", "onDisconnect", "onShutdown"] {
        assert_eq!(
            sentence(&[("s.lua", &service(&format!("s.{callback} = nil")))]),
            format!("service \"s\": s.lua has no function {callback}")
        );
        assert_eq!(
            sentence(&[("s.lua", &service(&format!("s.{callback} = true")))]),
            format!("service \"s\": {callback} in s.lua is a boolean, not a function")
        );
    }
}

#[test]
fn an_error_while_loading_has_line_and_calls() {
    let code = "local function inner()\n  error('boom')\nend\nlocal x = inner() or 1\nreturn {}\n";
    let error = refused(&[("s.lua", code)]);
    assert_eq!(error.line(), Some(2));
    assert!(
        error.to_string().contains("service \"s\": loading: "),
        "{error}"
    );
    assert!(
        error.traceback().contains("s.lua:4:"),
        "{}",
        error.traceback()
    );
}

#[test]
fn an_error_in_a_module_names_the_module() {
    let error = refused(&[
        ("s.lua", "require('helper')"),
        ("helper.lua", "\nlocal x = nil + 1"),
    ]);
    assert_eq!(error.line(), Some(2));
    assert!(
        error.place().unwrap().file.ends_with("helper.lua"),
        "{error:?}"
    );
}

#[test]
fn a_syntax_error_in_a_module_is_the_scripts() {
    let error = refused(&[("s.lua", "require('helper')"), ("helper.lua", "x x")]);
    assert_eq!(error.fault(), Fault::Script);
    assert!(error.to_string().contains("helper.lua:1:"), "{error}");
}

#[test]
fn a_missing_module_is_named() {
    let error = refused(&[("s.lua", "require('helper')")]);
    assert!(
        error.to_string().contains("module 'helper' not found"),
        "{error}"
    );
}

#[test]
fn names_that_require_could_not_find_are_refused() {
    let folder = folder(&[]);
    for name in ["", "a/b", "..", "a b", "string", "ws", &"x".repeat(65)] {
        let error = Instance::load(&ServiceSource::new(name, folder.path()))
            .err()
            .unwrap();
        assert!(
            matches!(error, ScriptError::Source { .. }),
            "{name}: {error}"
        );
    }
    let error = Instance::load(&ServiceSource::new("s", folder.path().join("a;b")))
        .err()
        .unwrap();
    assert!(error.to_string().contains("without '?' and ';'"), "{error}");
}

#[test]
fn a_config_that_is_no_table_is_refused() {
    let folder = folder(&[("s.lua", &service(""))]);
    let mut source = ServiceSource::new("s", folder.path());
    source.config = serde_json::json!([1]);
    let error = Instance::load(&source).err().unwrap();
    assert!(
        error.to_string().contains("config must be a table"),
        "{error}"
    );
    assert_eq!(error.fault(), Fault::Configuration);
}

#[test]
fn modules_come_from_the_folder() {
    let mut loaded = Service::try_load(
        &[
            (
                "s.lua",
                &service(
                    "local a, b = require('x'), require('x.y')\n\
                     function s.onMessage(h, o, m) return ws:send(h, o, a .. b .. m) end",
                ),
            ),
            ("x.lua", "return 'a'"),
            ("x/y.lua", "return 'b'"),
        ],
        &LoadOptions::default(),
    )
    .unwrap();
    assert_eq!(loaded.ask("c"), "abc");
}

#[test]
fn the_service_is_a_global_and_a_module() {
    let mut loaded = Service::load(
        "function s.onMessage(h, o, m)\n\
           return ws:send(h, o, tostring(_G.s == s and require('s') == s))\n\
         end",
    );
    assert_eq!(loaded.ask(""), "true");
}

#[test]
fn every_library_is_there_and_the_compiler_is_on() {
    let mut loaded = Service::load(
        "function s.onMessage(h, o, m)\n\
           local missing = {}\n\
           for _, name in ipairs{'io', 'os', 'debug', 'package', 'bit', 'jit', 'coroutine'} do\n\
             if type(_G[name]) ~= 'table' then missing[#missing + 1] = name end\n\
           end\n\
           local ffi = require('ffi')\n\
           return ws:send(h, o, table.concat(missing) .. tostring((jit.status())))\n\
         end",
    );
    assert_eq!(loaded.ask(""), "true");
}

#[test]
fn loops_are_compiled() {
    // jit.status() is true also where the compiler was never set up, so a trace is counted.
    let mut loaded = Service::load(
        "local traces = 0\n\
         jit.attach(function(what) if what == 'stop' then traces = traces + 1 end end, 'trace')\n\
         function s.onMessage(h, o, m)\n\
           local sum = 0\n\
           for i = 1, 100000 do sum = sum + i % 7 end\n\
           return ws:send(h, o, tostring(traces > 0))\n\
         end",
    );
    assert_eq!(loaded.ask(""), "true");
}

/// The service becomes a global and a module, and must not take the place of another.
#[test]
fn a_name_that_lua_or_moonwire_has_is_refused() {
    for name in [
        "next", "type", "pairs", "tostring", "_G", "ffi", "ws", "jit", "moonwire",
    ] {
        let folder = folder(&[(&format!("{name}.lua"), &service(""))]);
        let error = Instance::load(&ServiceSource::new(name, folder.path())).map(|_| ());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the name is taken"), "{error}");
    }
}
