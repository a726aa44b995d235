use std::thread::Builder;
use std::time::Duration;

use moonwire_lua::{Instance, LoadOptions, STACK_BYTES, Sandbox, ServiceSource};

use crate::harness::{folder, service};

/// Loads a service with this code in both sandboxes, on a thread like those of a server.
fn run(code: &str) {
    let code = service(code);
    let run = move || {
        for sandbox in [Sandbox::Restricted, Sandbox::Trusted] {
            let folder = folder(&[("s.lua", &code)]);
            let source = ServiceSource {
                sandbox,
                ..ServiceSource::new("s", folder.path())
            };
            let options = LoadOptions {
                callback_timeout: Some(Duration::from_secs(120)),
                ..LoadOptions::default()
            };
            Instance::load_with(&source, &options)
                .unwrap_or_else(|error| panic!("{sandbox:?}: {code}\n{error}"));
        }
    };
    let thread = Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap();
    thread.join().unwrap();
}

/// They get as deep as they may, and the process goes on.
#[test]
fn calls_within_calls_end_with_an_error() {
    for nested in [
        "f = function() return coroutine.wrap(f)() end",
        "f = function() assert(coroutine.resume(coroutine.create(f))) end",
        "f = function() assert(load(f)) end",
        // The text that is read is within 150 brackets by then.
        "f = function()
           local is_read
           assert(load(function()
             if is_read then f() end
             is_read = true
             return 'return ' .. ('('):rep(150)
           end))
         end",
        "f = function() table.sort({1, 2, 3}, f) return false end",
        "f = function() return (('x'):gsub('x', f)) end",
        "f = function() return coroutine.wrap(function() table.sort({1, 2, 3}, f) end)() end",
        "f = function() return assert(pcall(f)) end",
        "f = function() return assert(xpcall(f, tostring)) end",
        "local t = setmetatable({}, {__tostring = function() return f() end})
         f = function() return string.format('%s%s%s', 1, 2, t) end",
        "local t = setmetatable({}, {__tostring = function() return f() end})
         f = function() return (tostring(t)) end",
        "local t = setmetatable({}, {__lt = function() return f() end})
         f = function() table.sort({t, t, t}) return true end",
        "local t = setmetatable({}, {__index = function() return f() end})
         f = function() return (('x'):gsub('x', t)) end",
    ] {
        run(&format!(
            "local f
             {nested}
             for _ = 1, 3 do
               local ok, problem = pcall(f)
               assert(not ok and tostring(problem):find('overflow', 1, true), problem)
             end"
        ));
    }
}

/// What does not ask how much is left takes the stack of one coroutine and no more.
#[test]
fn deep_calls_in_many_coroutines_end_with_an_error() {
    run("local depth, f = 0
         local t = setmetatable({}, {__tostring = function() return f() end})
         f = function()
           depth = depth + 1
           if depth % 1000 == 0 then
             return coroutine.wrap(f)()
           end
           return string.format('%s', t)
         end
         local ok, problem = pcall(f)
         assert(not ok and tostring(problem):find('overflow', 1, true), problem)");
}

#[test]
fn coroutines_are_as_in_lua() {
    run(r#"
        local co = coroutine.create(function(a, b)
          local c = coroutine.yield(a + b)
          local d, e = coroutine.yield(c * 2)
          assert(coroutine.isyieldable() and coroutine.status(co or coroutine.running())
            == "running")
          return d, e, nil
        end)
        local function same(wanted, ...)
          local found = {...}
          assert(select('#', ...) == #wanted + 1 and found[1] == true)
          for index, value in ipairs(wanted) do
            assert(found[index + 1] == value, found[index + 1])
          end
        end
        same({3}, coroutine.resume(co, 1, 2))
        same({14}, coroutine.resume(co, 7))
        assert(coroutine.status(co) == "suspended")
        local results = {coroutine.resume(co, "d", "e")}
        assert(results[1] == true and results[2] == "d" and results[3] == "e")
        assert(coroutine.status(co) == "dead")
        local ok, problem = coroutine.resume(co)
        assert(ok == false and problem == "cannot resume dead coroutine")
        local raised = {}
        local failing = coroutine.create(function() error(raised) end)
        ok, problem = coroutine.resume(failing)
        assert(ok == false and problem == raised)
        ok, problem = pcall(coroutine.wrap(function() error(raised) end))
        assert(ok == false and problem == raised)
        ok, problem = pcall(coroutine.wrap(function() error("text", 0) end))
        assert(ok == false and problem:find("text", 1, true), problem)
        local numbers = {}
        for number in coroutine.wrap(function()
          for i = 1, 3 do
            coroutine.yield(i)
          end
        end) do
          numbers[#numbers + 1] = number
        end
        assert(table.concat(numbers) == "123")
        ok, problem = pcall(coroutine.wrap, 5)
        assert(not ok and problem:find("bad argument #1 to", 1, true), problem)
        ok, problem = pcall(coroutine.resume, 5)
        assert(not ok and problem:find("bad argument #1 to", 1, true), problem)
        assert(not pcall(table.sort) and not pcall(string.gsub) and not pcall(load))
    "#);
}
