//! What a restricted service cannot do, by the names that ways out of sandboxes of Lua have.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use moonwire_lua::{
    Effects, Instance, LoadOptions, Module, Opcode, Protocol, Sandbox, ScriptError, ServiceSource,
};
use tempfile::TempDir;

use crate::harness::{folder, handler, service};

fn source(folder: &TempDir, sandbox: Sandbox) -> ServiceSource {
    ServiceSource {
        sandbox,
        protocol: Protocol::Lapps,
        preload: vec![Module::Mqr, Module::Murmur, Module::Nap, Module::Time],
        config: serde_json::json!({"colour": "blue"}),
        ..ServiceSource::new("s", folder.path())
    }
}

fn load(files: &[(&str, &str)], sandbox: Sandbox) -> Result<Instance, ScriptError> {
    let folder = folder(files);
    Instance::load(&source(&folder, sandbox))
}

/// Runs `code` at the top level of a service; an assertion of it that fails, fails here.
fn run(code: &str) {
    let loaded = load(&[("s.lua", &service(code))], Sandbox::Restricted);
    loaded.unwrap_or_else(|error| panic!("{code}\n{error}"));
}

/// The same code in both sandboxes: what is not dangerous is as it is elsewhere.
fn run_in_both(code: &str) {
    run(code);
    load(&[("s.lua", &service(code))], Sandbox::Trusted).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn only_what_computes_is_left() {
    // Named here once more, so that a library that grows is looked at by somebody.
    run(r#"
        local known = {}
        for name in ([[_G _VERSION assert bcast bit collectgarbage coroutine error getmetatable
            ipairs load loadstring math mqr murmur nap next nljson os pairs pcall print rawequal
            rawget rawlen rawset require select setmetatable string table time tonumber tostring
            type unpack ws xpcall]]):gmatch("%S+") do
          known[name] = true
        end
        for name in pairs(_G) do
          assert(known[name], name)
        end
        local names = {}
        for name in pairs(os) do
          names[#names + 1] = name
        end
        table.sort(names)
        assert(table.concat(names, " ") == "clock date difftime time", table.concat(names, " "))
    "#);
}

#[test]
fn the_libraries_that_reach_the_system_are_gone() {
    for name in [
        "io",
        "debug",
        "package",
        "ffi",
        "jit",
        "jit.util",
        "jit.opt",
        "jit.profile",
        "string.buffer",
        "table.new",
        "bit.so",
        "libc",
    ] {
        run(&format!(
            "assert(_G['{name}'] == nil)
             local ok, problem = pcall(require, '{name}')
             assert(not ok and problem:find('not found', 1, true), problem)"
        ));
    }
}

#[test]
fn os_execute_and_its_like_are_gone() {
    for name in [
        "execute",
        "exit",
        "getenv",
        "remove",
        "rename",
        "setlocale",
        "tmpname",
    ] {
        run(&format!(
            "assert(os.{name} == nil and require('os').{name} == nil)"
        ));
    }
}

#[test]
fn string_dump_and_bytecode_are_gone() {
    run(r#"
        assert(string.dump == nil and ("").dump == nil and require("string").dump == nil)
        for _, bytecode in ipairs({"\27LJ\2\0", "\27Lua", "\27"}) do
          for _, mode in ipairs({"b", "bt", "t", "", "B", "tb"}) do
            local chunk = load(bytecode, "x", mode)
            assert(chunk == nil, mode)
          end
          assert(loadstring(bytecode) == nil)
          local given
          local function pieces()
            if not given then
              given = true
              return bytecode
            end
          end
          assert(load(pieces, "x", "bt") == nil)
        end
        assert(dofile == nil and loadfile == nil)
    "#);
}

#[test]
fn load_takes_text_with_an_environment_of_its_own() {
    run(r#"
        assert(load("return 1 + 1")() == 2)
        assert(load("return x", "name", "t", {x = 5})() == 5)
        local chunk, problem = load("x x", "=name")
        assert(chunk == nil and problem:find("name:1:", 1, true), problem)
        assert(loadstring("return ...")(7) == 7)
        assert(load("return _G")() == _G)
        assert(not pcall(load, {}) and not pcall(loadstring, function() end))
    "#);
}

#[test]
fn environments_of_functions_cannot_be_reached() {
    run(r#"
        assert(getfenv == nil and setfenv == nil)
        -- What setfenv would have done to a coroutine.
        local resumed = coroutine.wrap(function() return setfenv, getfenv, debug end)
        local a, b, c = resumed()
        assert(a == nil and b == nil and c == nil)
    "#);
}

#[test]
fn the_registry_cannot_be_reached() {
    run(r#"
        assert(debug == nil)
        for _, name in ipairs({"_LOADED", "_PRELOAD", "package.loaded", "_R", "registry"}) do
          assert(_G[name] == nil and not pcall(require, name), name)
        end
        assert(require("_G") == _G)
    "#);
}

#[test]
fn newproxy_and_garbage_collection_metamethods_are_gone() {
    run(r#"
        assert(newproxy == nil)
        setmetatable({}, {__gc = function() error("collected") end})
        collectgarbage("collect")
        assert(collectgarbage("count") > 0)
        collectgarbage("step")
        for _, option in ipairs({"stop", "restart", "setpause", "setstepmul", "x", 5}) do
          assert(not pcall(collectgarbage, option), option)
        end
    "#);
}

#[test]
fn metatables_of_ours_are_closed() {
    run(r#"
        assert(getmetatable("") == "string")
        assert(not pcall(setmetatable, "", {}))
        local document = nljson.decode('{"a": [1]}')
        for _, ours in ipairs({document, document.a, mqr.create("q")}) do
          assert(type(getmetatable(ours)) ~= "table")
          assert(not pcall(setmetatable, ours, {}))
        end
        local config = require("moonwire.config")
        assert(getmetatable(config) == "moonwire.config")
        assert(not pcall(setmetatable, config, {}))
        assert(not pcall(function() config.other = 1 end))
    "#);
}

#[test]
fn error_objects_and_handlers_show_nothing() {
    run(r#"
        -- An error of the host: a wrong type that its own function refuses.
        local ok, problem = pcall(require("moonwire.log").info, {})
        assert(not ok and type(getmetatable(problem)) ~= "table")
        local seen
        xpcall(function() require("moonwire.log").info({}) end, function(raised) seen = raised end)
        assert(seen ~= nil and type(getmetatable(seen)) ~= "table")
        assert(type(tostring(seen)) == "string")
        local proxy = setmetatable({}, {__tostring = function() return debug or io or "none" end})
        assert(tostring(proxy) == "none")
    "#);
}

#[test]
fn what_the_service_replaces_is_not_used_by_ours() {
    let code = r#"
        local find, ask = string.find, require("moonwire.json").encode
        local function stolen() error("stolen") end
        for _, library in ipairs({string, table, math}) do
          for name in pairs(library) do
            library[name] = stolen
          end
        end
        for _, name in ipairs({"error", "tostring", "type", "pairs", "next", "select",
            "setmetatable", "getmetatable", "rawget", "pcall", "load", "require"}) do
          _G[name] = stolen
        end
        function s.onMessage(h, o, m)
          local document = nljson.decode('{"status": 1, "cid": 0, "result": []}')
          document.result[1] = murmur.hashstr("a")
          nljson.foreach(document, function(key, value) end)
          return ws:send(h, document) and bcast:create(5) and find("ab", "b+") == 2
            and ask({1}) == "[1]" and select == stolen
        end"#;
    let folder = folder(&[("s.lua", &service(code))]);
    let mut instance = Instance::load(&source(&folder, Sandbox::Restricted)).unwrap();
    let mut effects = Effects::new();
    // {"lapps": 1, "method": "m"}
    let message = b"\xa2\x65lapps\x01\x66method\x61m";
    let outcome = instance.message(handler(1), Opcode::Binary, message, &mut effects);
    assert_eq!(outcome.unwrap(), moonwire_lua::Outcome::Continue);
    assert_eq!(effects.iter().count(), 1);
}

#[test]
fn modules_that_are_preloaded_work() {
    run_in_both(
        r#"
        assert(time.now() > 1e12)
        nap:new():usleep(1)
        assert(#murmur.hashstr("a") == 16)
        local queue = mqr.create("sandbox")
        queue:post(nljson.decode("[1]"))
        assert(queue:try_recv()[1] == 1)
        assert(require("moonwire.config").colour == "blue")
        assert(require("moonwire.json").encode({1}) == "[1]")
        assert(require("moonwire.time").wall_ms() > 1e12)
        assert(require("bit") == bit and require("string") == string)
        "#,
    );
}

#[test]
fn nljson_reads_no_files() {
    run(r#"
        local ok, problem = pcall(nljson.decode_file, "/etc/hostname")
        assert(not ok and problem:find("reads no files", 1, true), problem)
    "#);
}

#[test]
fn modules_come_from_the_folder_once() {
    let files = [
        (
            "s.lua",
            &*service(
                "local a, b, c = require('x'), require('x.y'), require('z')
                 assert(a == 'a' and b == 'x.y' and c == 'init')
                 assert(require('nothing') == true and require('nothing') == true and count == 1)
                 local ok, problem = pcall(require, 'loop')
                 assert(not ok and problem:find('loop or previous error', 1, true), problem)
                 ok, problem = pcall(require, 'wrong')
                 assert(not ok and problem:find('wrong.lua:1:', 1, true), problem)
                 ok, problem = pcall(require, 'code')
                 assert(not ok and problem:find('code', 1, true), problem)",
            ),
        ),
        ("x.lua", "return 'a'"),
        ("x/y.lua", "return ..."),
        ("z/init.lua", "return 'init'"),
        ("nothing.lua", "count = (count or 0) + 1"),
        ("loop.lua", "require('loop')"),
        ("wrong.lua", "x x"),
        ("code.lua", "\x1bLJ\x02\n"),
    ];
    load(&files, Sandbox::Restricted).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn paths_and_links_out_of_the_folder_are_refused() {
    let outside = folder(&[
        ("secret.lua", "return 'secret'"),
        ("more/secret.lua", "return 5"),
    ]);
    let secret = outside.path().join("secret.lua");
    let code = format!(
        r#"
        for _, name in ipairs({{"../secret", "..", ".", "", "a..b", ".a", "a.", "a/b", "a\0b",
        "%61",
            "a-b", [[{}]], "secret.lua", "s;x", "?", "\xff"}}) do
          local ok, problem = pcall(require, name)
          assert(not ok and problem:find("not found", 1, true), tostring(problem))
        end
        for _, name in ipairs({{"link", "folder.secret", "folder"}}) do
          local ok, problem = pcall(require, name)
          assert(not ok, name)
          assert(problem:find("link out of", 1, true) or name == "folder", problem)
        end
        assert(require("inner") == "here")
        "#,
        secret.display()
    );
    let folder = folder(&[("s.lua", &service(&code)), ("here.lua", "return 'here'")]);
    symlink(&secret, folder.path().join("link.lua")).unwrap();
    symlink(outside.path().join("more"), folder.path().join("folder")).unwrap();
    symlink("here.lua", folder.path().join("inner.lua")).unwrap();
    fs::create_dir(folder.path().join("here")).unwrap();
    Instance::load(&source(&folder, Sandbox::Restricted)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn instances_have_their_own_strings_and_modules() {
    let folder = folder(&[(
        "s.lua",
        &service(
            "local json = require('moonwire.json')
             assert(string.touched == nil and json.touched == nil)
             string.touched, json.touched = true, true",
        ),
    )]);
    let source = source(&folder, Sandbox::Restricted);
    let first = Instance::load(&source).unwrap();
    let second = Instance::load(&source).unwrap();
    drop((first, second));
}

/// Each of these takes LuaJIT alone longer than anybody waits, where nothing can interrupt it.
#[test]
fn what_cannot_be_interrupted_ends() {
    let begin = Instant::now();
    run(r#"
        local text = ("a"):rep(20000)
        local optional = ("a?"):rep(40) .. "b"
        local function ended(ok, problem)
          assert(not ok and problem:find("takes too long", 1, true), problem)
        end
        for _, pattern in ipairs({"a*a*a*b", ".-.-.-b", "(.*)(.*)(.*)%1b", optional}) do
          ended(pcall(string.find, text, pattern))
        end
        ended(pcall(string.match, text, "a+a+a+b"))
        ended(pcall(text:gmatch("a+a+a+b")))
        ended(pcall(string.gsub, text, "a+a+a+b", ""))
        ended(pcall(string.find, ("a"):rep(2^20), ("a"):rep(2^19) .. "b", 1, true))
        assert((""):rep(2^31 - 1) == "")
    "#);
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_line_is_named_where_a_pattern_is_wrong() {
    let error = load(
        &[("s.lua", &service("local x\nx = ('a'):find('%')"))],
        Sandbox::Restricted,
    );
    let error = error.map(|_| ()).unwrap_err();
    assert_eq!(error.line(), Some(7), "{error}");
    assert!(error.to_string().contains("malformed pattern"), "{error}");
}

#[test]
fn sorting_is_as_elsewhere() {
    run_in_both(
        r#"
        local t = {3, 1, 2}
        table.sort(t)
        assert(table.concat(t) == "123")
        table.sort(t, function(a, b) return a > b end)
        assert(table.concat(t) == "321")
        assert(not pcall(table.sort, {1, "a"}) and not pcall(table.sort, 5))
        assert(not pcall(table.sort, {}, 5))
        "#,
    );
}

/// Prints what find, match, gmatch and gsub give for each pattern on each subject.
const MATCHES: &str = r#"
    local subjects = {
      "", "a", "hello world", "  trim me  ", "key=value, other = thing", "f(a(b)c)d(e)",
      "THE (quick)",
      "aaa", "aXbXc", "1.5e10 -7 0x1F", "a\0b", "\r\n\t\v", "[]%^$", "x^2", "abcabc", "grüße",
      "%d", "-", "a-b", "]", ("ab"):rep(50),
    }
    local patterns = {
      "", "a", ".", "a*", "a+", "a-", "a?", "^a", "a$", "^$", "^", "$", "^^", "$$", "%w+", "%W+",
      "%s*", "(%w+)%s*=%s*(%w+)", "^%s*(.-)%s*$", "%b()", "%b((", "%f[%w]%w+", "%f[%W]", "()",
      "()a()",
      "(a)(b)(c)", "((a)(b))", "(.)%1", "(...)%1", "[abc]", "[^abc]", "[a-c]", "[%w_]+", "[]]",
      "[^]]",
      "[a-]", "[-a]", "[%]]", "%%", "%.", "[%a-z]", "X", "l+", "(l)(l)", "%d+", "[%d.]+", "[^%s]+",
      "%x+", "%p", "%c", "%l%u", "%g+", "%z", "a.-b", ".-c", "(%w+) (%w+)", "x%^2", ".*",
      "(.*)", "^.-$",
      "[\128-\255]+", "%S+", "a?b?c?", "(a*(.)%w(%s*))", "%-", "[%-]", "o w", "[+-]?%d+",
      -- Wrong ones.
      "%", "[", "[a", "[^", "[%", "%1", "(a)%2", "%b", "%bx", "%f", "%fa",
      ("()"):rep(33), "[]", "[^]", "%0",
    }
    local replacements = {"", "<%0>", "<%1>", "%%", "%2", 7,
      {a = "A", hello = false, l = 5}, function(...) return select('#', ...) .. ":" end,
      function() end, function() return {} end}
    local out = {}
    local function note(...)
      local parts = {}
      for index = 1, select('#', ...) do
        parts[index] = tostring((select(index, ...)))
      end
      if parts[1] == "false" then
        parts = {"false"}
      end
      out[#out + 1] = table.concat(parts, "|")
    end
    for _, subject in ipairs(subjects) do
      for _, pattern in ipairs(patterns) do
        for _, init in ipairs({1, 2, -1, 0, -100, 100}) do
          note(pcall(string.find, subject, pattern, init))
          note(pcall(string.match, subject, pattern, init))
        end
        note(pcall(string.find, subject, pattern, 1, true))
        note(pcall(function()
          local all = {}
          for a, b in subject:gmatch(pattern) do
            all[#all + 1] = tostring(a) .. ":" .. tostring(b)
          end
          return unpack(all)
        end))
        for _, replacement in ipairs(replacements) do
          note(pcall(string.gsub, subject, pattern, replacement))
          note(pcall(string.gsub, subject, pattern, replacement, 1))
          note(pcall(string.gsub, subject, pattern, replacement, 0))
        end
      end
    end
    note(pcall(string.find, 12345, 34))
    note(pcall(string.gsub, 12345, 3, 4))
    note(pcall(string.find))
    note(pcall(string.find, "a", {}))
    note(pcall(string.gsub, "a", "a"))
    function s.onMessage(h, o, m)
      for index = 1, #out do
        ws:send(h, 2, out[index])
      end
      return true
    end
"#;

/// LuaJIT finds that a capture has no end only where it is asked for the capture, and takes `)`
/// alone for text.
#[test]
fn a_capture_without_both_ends_is_wrong() {
    run(r#"
        local ok, problem = pcall(string.find, "a", ")")
        assert(not ok and problem:find("invalid pattern capture", 1, true), problem)
        for _, pattern in ipairs({"(", "(()", "((a)", "a("}) do
          for _, call in ipairs({string.find, string.match, string.gsub}) do
            local ok, problem = pcall(call, "a", pattern, call == string.gsub and "" or nil)
            assert(not ok and problem:find("unfinished capture", 1, true), problem)
          end
        end
    "#);
}

/// LuaJIT's own functions are those of a trusted service.
#[test]
fn patterns_match_what_they_match_in_luajit() {
    let [trusted, restricted] = [Sandbox::Trusted, Sandbox::Restricted].map(|sandbox| {
        let folder = folder(&[("s.lua", &service(MATCHES))]);
        let source = ServiceSource {
            protocol: Protocol::Raw,
            ..source(&folder, sandbox)
        };
        let mut options = LoadOptions::default();
        options.effects.count_max = 1_000_000;
        let mut instance = Instance::load_with(&source, &options).unwrap_or_else(|e| panic!("{e}"));
        let mut effects = Effects::new();
        let said = instance.message(handler(1), Opcode::Text, b"", &mut effects);
        said.unwrap_or_else(|error| panic!("{error}"));
        effects
            .iter()
            .map(|effect| format!("{effect:?}"))
            .collect::<Vec<_>>()
    });
    assert!(trusted.len() > 50_000, "{}", trusted.len());
    assert_eq!(trusted.len(), restricted.len());
    for (index, (wanted, found)) in trusted.iter().zip(&restricted).enumerate() {
        assert_eq!(found, wanted, "call {index}");
    }
}
