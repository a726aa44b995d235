use std::sync::Arc;

use moonwire_lua::{
    Effect, EffectLimits, Effects, Handler, LoadOptions, Opcode, Outcome, RoundTrip, RoundTrips,
    ScriptError,
};

use crate::harness::{Service, handler, service};

#[test]
fn messages_reach_the_service_byte_for_byte() {
    let mut loaded = Service::load(
        "function s.onMessage(h, o, m)\n\
           return ws:send(h, 2, ('%d %d %d %s'):format(h, o, #m, m:byte(2)))\n\
         end",
    );
    let largest = Handler::MAX;
    let outcome = loaded
        .instance
        .message(largest, Opcode::Binary, b"a\0\xff", &mut loaded.effects);
    assert_eq!(outcome.unwrap(), Outcome::Continue);
    assert_eq!(loaded.sent(), ["99999999999999 2 3 0"]);
    loaded.say("xyz").unwrap();
    assert_eq!(loaded.sent(), ["1 1 3 121"]);
}

#[test]
fn callbacks_run_in_their_order_and_handlers_print_the_same() {
    let mut loaded = Service::load(
        "local seen = {}\n\
         local function note(...) seen[#seen + 1] = table.concat({...}, ' ') end\n\
         function s.onStart() note('start') end\n\
         function s.onShutdown() note('shutdown') end\n\
         function s.onDisconnect(h) note('gone', tostring(h)) end\n\
         function s.onMessage(h, o, m)\n\
           note('message', tostring(h))\n\
           return ws:send(h, o, table.concat(seen, ','))\n\
         end",
    );
    let Service {
        instance, effects, ..
    } = &mut loaded;
    instance.start(effects).unwrap();
    let first = handler(98_765_432_109_876);
    instance.message(first, Opcode::Text, b"", effects).unwrap();
    instance.disconnect(first, effects).unwrap();
    instance.shutdown(effects).unwrap();
    instance
        .message(handler(2), Opcode::Text, b"", effects)
        .unwrap();
    assert_eq!(
        loaded.sent(),
        ["start,message 98765432109876,gone 98765432109876,shutdown,message 2"]
    );
}

#[test]
fn anything_but_true_stops_the_connection_and_the_effects_stay() {
    for answer in ["false", "nil", "1", "'true'", "{}", ""] {
        let mut loaded = Service::load(&format!(
            "function s.onMessage(h, o, m) ws:send(h, o, m) return {answer} end"
        ));
        assert_eq!(loaded.say("x").unwrap(), Outcome::Stop, "{answer}");
        assert_eq!(loaded.sent(), ["x"]);
    }
}

#[test]
fn an_error_keeps_what_came_before_and_the_instance() {
    let mut loaded = Service::load(
        "local function fail(m) error('bad ' .. m) end\n\
         function s.onMessage(h, o, m)\n\
           ws:send(h, o, 'first')\n\
           if m == 'fail' then fail(m) end\n\
           return true\n\
         end",
    );
    let error = loaded.say("fail").unwrap_err();
    assert_eq!(loaded.sent(), ["first"]);
    assert_eq!(error.service(), "s");
    let text = error.to_string();
    assert!(text.starts_with("service \"s\": onMessage: "), "{text}");
    assert!(text.ends_with("bad fail"), "{text}");
    let line = error.line().unwrap();
    assert!(
        error
            .traceback()
            .contains(&format!("s.lua:{line}: in upvalue 'fail'"))
    );
    assert!(
        error
            .traceback()
            .contains(&format!("s.lua:{}: in function", line + 3))
    );
    assert!(
        !error.traceback().contains("[moonwire]"),
        "{}",
        error.traceback()
    );
    assert_eq!(loaded.say("go on").unwrap(), Outcome::Continue);
}

#[test]
fn errors_of_every_kind_are_reported() {
    for (code, wanted) in [
        ("error({code = 5})", "table"),
        ("error('plain', 0)", "plain"),
        ("error()", "nil"),
        ("local x = nil; x.y = 1", "attempt to index"),
        (
            "error(setmetatable({}, {__tostring = function() return 'custom' end}))",
            "custom",
        ),
        ("coroutine.yield()", "attempt to yield"),
        (
            "local function f() return 1 + f() end f()",
            "stack overflow",
        ),
        (
            "ws.send(h, o, m)",
            "call it with a colon: ws:send(handler, opcode, data)",
        ),
        (
            "ws.close(h, 1000)",
            "call it with a colon: ws:close(handler, code [, reason])",
        ),
        ("require('moonwire.log').info({})", "string"),
    ] {
        let mut loaded = Service::load(&format!(
            "function s.onMessage(h, o, m) {code} return true end"
        ));
        let error = loaded.say("x").unwrap_err();
        assert!(error.to_string().contains(wanted), "{code}: {error}");
        // A full stack has no room left to look for the line.
        let overflow = wanted == "stack overflow";
        assert!(error.line().is_some() || overflow, "{code}: {error:?}");
        loaded.say("again").unwrap_err();
    }
}

#[test]
fn errors_in_the_other_callbacks_name_them() {
    let mut loaded = Service::load(
        "function s.onStart() error('a') end\n\
         function s.onDisconnect() error('b') end\n\
         function s.onShutdown() error('c') end",
    );
    let Service {
        instance, effects, ..
    } = &mut loaded;
    let name = |error: ScriptError| {
        let ScriptError::Raised { callback, .. } = error else {
            panic!("{error:?}")
        };
        callback
    };
    assert_eq!(name(instance.start(effects).unwrap_err()), "onStart");
    assert_eq!(
        name(instance.disconnect(handler(1), effects).unwrap_err()),
        "onDisconnect"
    );
    assert_eq!(name(instance.shutdown(effects).unwrap_err()), "onShutdown");
}

#[test]
fn a_service_may_replace_its_callbacks() {
    let mut loaded = Service::load(
        "function s.onMessage(h, o, m)\n\
           s.onMessage = function(h, o, m) return ws:send(h, o, 'second') end\n\
           return ws:send(h, o, 'first')\n\
         end",
    );
    assert_eq!(loaded.ask(""), "first");
    assert_eq!(loaded.ask(""), "second");
}

/// Runs an expression in onMessage of connection 1 and returns its first two values as text.
fn evaluate(expression: &str) -> String {
    let mut loaded = Service::load(&format!(
        "function s.onMessage(h, o, m)\n\
           local first, second = {expression}\n\
           answer = tostring(first) .. ' ' .. tostring(second)\n\
           return true\n\
         end\n\
         function s.onStart() error(answer, 0) end"
    ));
    loaded.say("message").unwrap();
    let error = loaded.instance.start(&mut loaded.effects).unwrap_err();
    let ScriptError::Raised { message, .. } = error else {
        panic!("{error:?}")
    };
    message
}

#[test]
fn send_says_what_is_wrong() {
    for (call, wanted) in [
        ("ws:send(h, 1, 'x')", "true nil"),
        ("ws:send(h, 2, '\\255')", "true nil"),
        ("ws:send(h, 1, 12)", "true nil"),
        (
            "ws:send(h, 8, 'x')",
            "opcode must be 1 (text) or 2 (binary)",
        ),
        (
            "ws:send(h, 'x', 'x')",
            "opcode must be 1 (text) or 2 (binary)",
        ),
        (
            "ws:send(h, 1LL, 'x')",
            "opcode must be 1 (text) or 2 (binary)",
        ),
        (
            "ws:send(h, 1)",
            "data must be a string or a number, not a nil",
        ),
        (
            "ws:send(h, 1, {})",
            "data must be a string or a number, not a table",
        ),
        (
            "ws:send('1', 1, 'x')",
            "handler must be a number, not a string",
        ),
        ("ws:send(h, 1, '\\255')", "must be UTF-8"),
        (
            "ws:send(h + 1, 1, 'x')",
            "no live connection has this handler",
        ),
        ("ws:send(-1, 1, 'x')", "no live connection has this handler"),
        (
            "ws:send(0/0, 1, 'x')",
            "no live connection has this handler",
        ),
        ("ws:close(h, 1000)", "true nil"),
        ("ws:close(h, 4999, 'r')", "true nil"),
        ("ws:close(h, 1011, ('r'):rep(123))", "true nil"),
        ("ws:close(h, 1011, ('r'):rep(124))", "at most 123 bytes"),
        ("ws:close(h, 1000, '\\255')", "reason must be UTF-8"),
        (
            "ws:close(h, 1000, 5)",
            "reason must be a string, not a number",
        ),
        ("ws:close(h)", "code must be a number, not a nil"),
        (
            "ws:close(h, 1005)",
            "code must be 1000-1003, 1007-1011 or 3000-4999",
        ),
        ("ws:close(h, 1011)", "true nil"),
        ("ws:close(h, 1015)", "code must be"),
        ("ws:close(h, 2999)", "code must be"),
        ("ws:close(h, 5000)", "code must be"),
        ("ws:close(h, 1000.5)", "code must be"),
        (
            "ws:close(h + 1, 1000)",
            "no live connection has this handler",
        ),
    ] {
        let answer = evaluate(call);
        assert!(answer.contains(wanted), "{call}: {answer}");
        assert_eq!(
            answer.starts_with("true"),
            wanted == "true nil",
            "{call}: {answer}"
        );
    }
}

#[test]
fn numbers_are_sent_as_lua_prints_them() {
    let mut loaded = Service::load("function s.onMessage(h, o, m) return ws:send(h, o, 12.5) end");
    assert_eq!(loaded.ask(""), "12.5");
}

#[test]
fn a_connection_can_be_sent_to_until_it_is_gone() {
    let mut loaded = Service::load(
        "local first\n\
         function s.onMessage(h, o, m)\n\
           first = first or h\n\
           return (ws:send(first, o, m))\n\
         end\n\
         function s.onDisconnect(h)\n\
           assert(ws:send(h, 1, 'x') == false)\n\
         end",
    );
    let Service {
        instance, effects, ..
    } = &mut loaded;
    instance
        .message(handler(1), Opcode::Text, b"a", effects)
        .unwrap();
    instance
        .message(handler(2), Opcode::Text, b"b", effects)
        .unwrap();
    let to: Vec<_> = effects.iter().collect();
    assert_eq!(
        to,
        [Effect::Send {
            handler: handler(1),
            opcode: Opcode::Text,
            payload: b"b"
        }]
    );
    instance.disconnect(handler(1), effects).unwrap();
    let outcome = instance
        .message(handler(2), Opcode::Text, b"c", effects)
        .unwrap();
    assert_eq!(outcome, Outcome::Stop);
    assert!(effects.is_empty());
}

#[test]
fn effects_of_one_callback_are_bounded() {
    let options = LoadOptions {
        effects: EffectLimits {
            count_max: 3,
            bytes_max: 10,
        },
        ..LoadOptions::default()
    };
    let code = service(
        "function s.onMessage(h, o, m)\n\
           local sent = 0\n\
           for i = 1, 5 do if ws:send(h, o, m .. i) then sent = sent + 1 end end\n\
           return sent == tonumber(m:sub(1, 1))\n\
         end",
    );
    let mut loaded = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    assert_eq!(loaded.say("3").unwrap(), Outcome::Continue);
    assert_eq!(loaded.sent(), ["31", "32", "33"]);
    assert_eq!(
        loaded.say("2abc").unwrap(),
        Outcome::Continue,
        "ten bytes are two of five"
    );
    assert_eq!(
        loaded.say("0123456789").unwrap(),
        Outcome::Continue,
        "not one of eleven"
    );
}

#[test]
fn out_of_memory_ends_the_callback_only() {
    let options = LoadOptions {
        memory_bytes_max: Some(8 << 20),
        ..LoadOptions::default()
    };
    let code = service(
        "function s.onMessage(h, o, m)\n\
           if m == 'hoard' then\n\
             local t = {}\n\
             for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end\n\
           elseif m == 'decode' then\n\
             require('moonwire.json').decode('[' .. ('{},'):rep(1e6) .. '1]')\n\
           end\n\
           return ws:send(h, o, m)\n\
         end",
    );
    let mut loaded = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    for _ in 0..3 {
        let error = loaded.say("hoard").unwrap_err();
        assert!(
            matches!(
                error,
                ScriptError::OutOfMemory {
                    bytes_max: Some(_),
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(loaded.ask("well"), "well");
        loaded.say("decode").unwrap_err();
        assert_eq!(loaded.ask("well"), "well");
        let big = "x".repeat(9 << 20);
        let refused = loaded.say(&big).unwrap();
        assert!(matches!(refused, Outcome::Refused(refusal) if refusal.code == 1009));
        assert_eq!(loaded.ask("well"), "well");
    }
    assert!(loaded.instance.memory_bytes() < 8 << 20);
}

#[test]
fn instances_share_nothing() {
    let code = "count = 0\nfunction s.onMessage(h, o, m)\n count = count + 1\n \
                return ws:send(h, o, tostring(count))\nend";
    let (mut one, mut two) = (Service::load(code), Service::load(code));
    one.say("").unwrap();
    one.say("").unwrap();
    two.say("").unwrap();
    assert_eq!(
        (one.sent(), two.sent()),
        (vec!["2".to_owned()], vec!["1".to_owned()])
    );
}

#[test]
fn effects_may_be_shared_between_instances() {
    let code = "function s.onMessage(h, o, m) return ws:send(h, o, m) end";
    let (mut one, mut two) = (Service::load(code), Service::load(code));
    let mut effects = Effects::new();
    one.instance
        .message(handler(1), Opcode::Text, b"one", &mut effects)
        .unwrap();
    two.instance
        .message(handler(2), Opcode::Text, b"two", &mut effects)
        .unwrap();
    let all: Vec<_> = effects.iter().collect();
    assert_eq!(
        all,
        [Effect::Send {
            handler: handler(2),
            opcode: Opcode::Text,
            payload: b"two"
        }]
    );
}

#[test]
fn config_is_a_table_that_takes_no_new_fields() {
    let folder = crate::harness::folder(&[(
        "s.lua",
        &service(
            "local config = require('moonwire.config')\n\
             assert(config.name == 'x' and config.list[2] == 2.5 and #config.list == 2)\n\
             assert(config.deep.flag == true and config.missing == nil and config.none == nil)\n\
             local names = {}\n\
             for name in pairs(config) do names[#names + 1] = name end\n\
             assert(#names == 3, #names)\n\
             for _, table in ipairs{config, config.deep, config.list} do\n\
               local added, problem = pcall(function() table.typo = 1 end)\n\
               assert(not added and problem:find('read%-only, it has no field typo'), problem)\n\
               assert(not pcall(setmetatable, table, nil))\n\
             end",
        ),
    )]);
    let mut source = moonwire_lua::ServiceSource::new("s", folder.path());
    source.config = serde_json::json!({
        "name": "x", "list": [1, 2.5], "deep": { "flag": true }, "none": null,
    });
    moonwire_lua::Instance::load(&source).unwrap();
}

#[test]
fn clocks_tell_integers() {
    Service::load(
        "local time = require('moonwire.time')\n\
         local ms, us, ns = time.wall_ms(), time.wall_us(), time.wall_ns()\n\
         for _, t in ipairs{ms, us, ns} do assert(t % 1 == 0) end\n\
         assert(ms > 1.7e12 and math.abs(us / 1000 - ms) < 60000)\n\
         assert(math.abs(ns / 1000 - us) < 6e7)\n\
         assert(('%d'):format(us):len() == 16)\n\
         local last = 0\n\
         for _ = 1, 1000 do\n\
           local now = time.monotonic_ns()\n\
           assert(now >= last and now % 1 == 0)\n\
           last = now\n\
         end\n\
         assert(last > 0)",
    );
}

#[test]
fn a_service_cannot_end_the_server() {
    let mut loaded = Service::load("function s.onMessage(h, o, m) os.exit(3) end");
    let error = loaded.say("x").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("os.exit would end the whole server"),
        "{error}"
    );
}

/// Knows one number for each handler.
#[derive(Debug)]
struct Known;

impl RoundTrips for Known {
    fn round_trip(&self, handler: Handler) -> Option<RoundTrip> {
        let last_us = u32::try_from(handler.as_u64()).ok()? * 1000;
        Some(RoundTrip {
            last_us,
            smoothed_us: last_us + 1,
        })
    }
}

#[test]
fn a_service_knows_the_round_trips_of_its_own_connections_only() {
    let code = "local rtt_us = require('moonwire.connection').rtt_us\n\
         function s.onMessage(h, o, m)\n\
           return ws:send(h, 1, table.concat({tostring(rtt_us(tonumber(m))),\n\
             tostring(select(2, rtt_us(tonumber(m))))}, ' '))\n\
         end\n\
         function s.onDisconnect(h) ws:send(1, 1, tostring(rtt_us(h))) end";
    let known = LoadOptions {
        round_trips: Some(Arc::new(Known)),
        ..LoadOptions::default()
    };
    let mut loaded = Service::try_load(&[("s.lua", &service(code))], &known).unwrap();
    let effects = &mut loaded.effects;
    let two = handler(2);
    let meet = loaded.instance.message(two, Opcode::Text, b"2", effects);
    meet.unwrap();
    assert_eq!(loaded.sent(), ["2001 2000"]);
    assert_eq!(loaded.ask("2"), "2001 2000");
    for stranger in ["3", "-1", "1.5", "1e300"] {
        assert_eq!(loaded.ask(stranger), "nil nil", "{stranger}");
    }
    let effects = &mut loaded.effects;
    loaded.instance.disconnect(two, effects).unwrap();
    assert_eq!(loaded.sent(), ["nil"]);
    assert!(loaded.say("'nobody'").is_err(), "it wants a number");
    // Without a server nothing is known.
    assert_eq!(Service::load(code).ask("1"), "nil nil");
}
