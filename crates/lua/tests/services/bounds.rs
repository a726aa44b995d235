//! Scripts that would take the process with them, or keep their worker, in both sandboxes.

use std::mem;
use std::thread;
use std::time::Duration;

use moonwire_lua::{
    Effects, Instance, LoadOptions, Module, Opcode, Outcome, STACK_BYTES, Sandbox, ScriptError,
    ServiceSource,
};

use crate::harness::{Service, folder, handler, service};

const SANDBOXES: [Sandbox; 2] = [Sandbox::Trusted, Sandbox::Restricted];

fn load(code: &str, sandbox: Sandbox, options: &LoadOptions) -> Result<Instance, ScriptError> {
    let folder = folder(&[("s.lua", code)]);
    let source = ServiceSource {
        sandbox,
        ..ServiceSource::new("s", folder.path())
    };
    Instance::load_with(&source, options)
}

/// Each calls itself through C, which lies on the stack of the thread. Beyond its end the process
/// would be gone.
#[test]
fn calls_within_each_other_end_in_an_error() {
    let code = r#"
        local meta = {}
        local odd = setmetatable({}, meta)
        local ways = {}
        function ways.format()
          meta.__tostring = function() return string.format("%s", odd) end
          return tostring(odd)
        end
        function ways.load() return load(ways.load) end
        function ways.sort() table.sort({3, 2, 1}, ways.sort) end
        function ways.wrap() return coroutine.wrap(ways.wrap)() end
        function ways.resume() return assert(coroutine.resume(coroutine.create(ways.resume))) end
        function ways.gsub() return (string.gsub("x", "x", ways.gsub)) end
        function ways.foreach() nljson.foreach(nljson.decode("[1]"), ways.foreach) end
        function ways.format_in_coroutines(depth)
          local nested = 0
          local inner = setmetatable({}, {__tostring = function(value)
            nested = nested + 1
            if nested > 3000 then
              coroutine.wrap(ways.format_in_coroutines)()
              return ""
            end
            return string.format("%s", value)
          end})
          return tostring(inner)
        end
        for name, way in pairs(ways) do
          pcall(way)
        end
        -- What is not that deep goes on as ever, values and errors pass, and yields do.
        local function nest(depth, ...)
          if depth == 0 then return ... end
          return coroutine.wrap(nest)(depth - 1, ...)
        end
        assert(select('#', nest(100, 1, nil, 3)) == 3)
        local wrapped = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) error(b, 0) end)
        assert(wrapped(1) == 2)
        assert(select(2, pcall(wrapped, "five")) == "five")
        assert(not pcall(coroutine.wrap) and not pcall(coroutine.resume, 5))
        assert(tostring(nil) == "nil" and not pcall(tostring))
    "#;
    for sandbox in SANDBOXES {
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let ended = thread.spawn(move || {
            let loaded = load(&service(code), sandbox, &LoadOptions::default());
            loaded.map(|_| ()).map_err(|error| error.to_string())
        });
        ended.unwrap().join().unwrap().unwrap();
    }
}

/// Each of them takes for ever, or as good as that, where no instruction of Lua is between.
#[test]
fn what_runs_in_c_is_stopped_too() {
    let restricted = [
        "local t = {} for i = 1, 1e5 do t[i] = setmetatable({}, {__call = rawequal})
         end while true do table.sort(t, pcall) end",
        "local t = {} for i = 1, 1e5 do t[i] = -i end while true do table.sort(t, rawequal) end",
        "while true do pcall(table.insert, {1}, -2147483648, 1) end",
    ];
    let both = [
        "local m = {} m.__tostring = tostring tostring(setmetatable({}, m))",
        "local t = {} for i = 1, 60 do t = {t, t} end require('moonwire.json').encode(t)",
        "local d, t = nljson.decode('{}'), {} for i = 1, 60 do t = {t, t} end d.x = t",
        "return setmetatable({}, {__index = function() while true do end end})",
    ];
    let options = LoadOptions {
        callback_timeout: Some(Duration::from_millis(100)),
        memory_bytes_max: Some(64 << 20),
        ..LoadOptions::default()
    };
    let endless = SANDBOXES
        .into_iter()
        .flat_map(|sandbox| both.map(|code| (sandbox, code)));
    let endless = endless.chain(restricted.map(|code| (Sandbox::Restricted, code)));
    for (sandbox, code) in endless {
        let code = match code.starts_with("return") {
            true => code.to_owned(),
            false => service(code),
        };
        // Most are stopped; a stack or the memory may be full before.
        let ended = load(&code, sandbox, &options).map(|_| ());
        assert!(ended.is_err(), "{code}");
    }
}

/// The first value of a type of ours makes its metatable, where a failure would not be caught.
#[test]
fn a_full_machine_can_use_what_it_never_used_before() {
    let code = "
        function s.onMessage(handler, opcode, message)
          local texts, tables, decode, create = {}, {}, nljson.decode, mqr.create
          local slack = tonumber(message)
          local function fill_texts() for i = 1, 1e7 do texts[i] = ('x'):rep(1000 + i) end end
          local function fill_tables() for i = 1, 1e7 do tables[i] = {} end end
          pcall(fill_texts)
          pcall(fill_tables)
          for i = 1, slack do tables[i] = nil end
          collectgarbage()
          pcall(decode, '{}')
          pcall(create, 'q')
          return true
        end";
    let folder = folder(&[("s.lua", &service(code))]);
    let source = ServiceSource {
        preload: vec![Module::Mqr],
        ..ServiceSource::new("s", folder.path())
    };
    let options = LoadOptions {
        memory_bytes_max: Some(1_500_000),
        ..LoadOptions::default()
    };
    for slack in 0..100 {
        let mut instance = Instance::load_with(&source, &options).unwrap();
        let message = slack.to_string();
        // Whatever it comes to: the process is still there.
        let _ = instance.message(
            handler(1),
            Opcode::Text,
            message.as_bytes(),
            &mut Effects::new(),
        );
        // A debug build of LuaJIT counts its memory at the end, wrongly where it once ran out.
        mem::forget(instance);
    }
}

/// Eight million empty arrays in as many bytes, and numbers in a byte each.
#[test]
fn a_message_that_would_take_much_more_than_its_bytes_is_refused() {
    let mut service = Service::lapps("");
    for item in [0x80, 0x00] {
        let mut message = b"\xa1\x61x\x9a\x00\xf4\x24\x00".to_vec();
        message.resize(message.len() + 16_000_000, item);
        let outcome =
            service
                .instance
                .message(handler(1), Opcode::Binary, &message, &mut service.effects);
        let Ok(Outcome::Refused(refusal)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(refusal.code, 1009);
    }
}

/// LuaJIT has room for some 8,000 values that are held from outside.
#[test]
fn documents_and_tables_may_have_many_entries() {
    let mut service = Service::lapps(
        "local document = nljson.decode('{}')
         local strings, fields = {}, {}
         for i = 1, 20000 do
           strings[i] = 'text ' .. i
           fields['name ' .. i] = 'text ' .. i
         end
         document.strings, document.fields = strings, fields
         local seen = 0
         nljson.foreach(document.fields, function(key, value) seen = seen + 1 end)
         assert(seen == 20000 and document.strings[20000] == 'text 20000')",
    );
    service.effects.clear();
}

#[test]
fn a_restricted_service_may_connect_to_others() {
    let folder = folder(&[("s.lua", &service("assert(cws.new)"))]);
    let source = ServiceSource {
        preload: vec![Module::Cws],
        sandbox: Sandbox::Restricted,
        ..ServiceSource::new("s", folder.path())
    };
    Instance::load(&source).unwrap_or_else(|error| panic!("{error}"));
}
