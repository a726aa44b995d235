use std::cell::RefCell;

use crate::harness::Service;

/// Runs Lua code with `json` at hand; an assertion that fails there fails here.
fn run(code: &str) {
    Service::load(&format!("local json = require('moonwire.json')\n{code}"));
}

#[test]
fn what_is_read_is_written_again() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.5",
        "\"\"",
        "[]",
        "{}",
        "[1,2,3]",
        "[[],{}]",
        "[null,null]",
        "{\"a\":null}",
        "{\"a\":{\"b\":[{\"c\":1}]},\"b\":2}",
        "1e300",
        "5e-324",
        "1.7976931348623157e308",
        "0.1",
        "123456.789e3",
        "9007199254740992",
        "-9007199254740992",
        "1763760000123456",
        "\"\\u0000\\n\\\"\\\\\"",
        "\"grüße \u{1F600}\"",
        "\"/\"",
    ] {
        let wanted: serde_json::Value = serde_json::from_str(text).unwrap();
        let written = again(text);
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        // 123456.789e3 is the integer 123456789 for Lua.
        if text != "123456.789e3" {
            assert_eq!(read, wanted, "{text} became {written}");
        }
    }
    assert_eq!(again("123456.789e3"), "123456789");
    assert_eq!(again("1763760000123456"), "1763760000123456");
    assert_eq!(again("1763760000123456789"), "1763760000123456768");
    assert_eq!(again("18446744073709551615"), "1.8446744073709552e+19");
    assert_eq!(
        again(" { \"b\" : 1 , \"a\" : 2, \"b\" : 3 } "),
        "{\"a\":2,\"b\":3}"
    );
    assert_eq!(again("\"\\u00e9\\ud83d\\ude00\""), "\"é\u{1F600}\"");
}

#[test]
fn every_character_is_escaped_where_it_must_be() {
    for code in 0..0x300_u32 {
        for before in [0, 63, 64, 100] {
            let text = format!("{}{}end", "x".repeat(before), char::from_u32(code).unwrap());
            let written = again(&serde_json::to_string(&text).unwrap());
            assert_eq!(
                serde_json::from_str::<String>(&written).unwrap(),
                text,
                "{code:#x}"
            );
        }
    }
}

#[test]
fn every_float_comes_back_exactly() {
    let seed = 42;
    println!("seed {seed}");
    let mut state: u64 = seed;
    for _ in 0..2_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(state);
        if number.is_finite() {
            let text = serde_json::to_string(&number).unwrap();
            let read: f64 = again(&text).parse().unwrap();
            assert_eq!(read.to_bits(), number.to_bits(), "{text}");
        }
    }
}

/// Decodes and encodes again; one service per test for all its calls.
fn again(text: &str) -> String {
    thread_local! {
        static SERVICE: RefCell<Service> = RefCell::new(Service::load(
            "local json = require('moonwire.json')\n\
             function s.onMessage(h, o, m) return ws:send(h, o, json.encode(json.decode(m))) end",
        ));
    }
    SERVICE.with_borrow_mut(|service| service.ask(text))
}

#[test]
fn decoded_values_are_plain_lua() {
    run(r#"
        local value = json.decode('{"n":1,"f":1.5,"s":"x","t":true,"z":null,"a":[10,20]}')
        assert(value.n == 1 and value.f == 1.5 and value.s == "x" and value.t == true)
        assert(value.z == json.null and value.z ~= nil)
        assert(#value.a == 2 and value.a[2] == 20)
        assert(json.decode("null") == json.null)
    "#);
}

#[test]
fn tables_become_arrays_or_objects() {
    run(r#"
        assert(json.encode({}) == "{}")
        assert(json.encode(json.array()) == "[]")
        assert(json.encode(json.array({})) == "[]")
        assert(json.encode({1, "b", false}) == '[1,"b",false]')
        assert(json.encode({json.null}) == "[null]")
        assert(json.encode({b = 1, a = 2, ["ä"] = 3, A = 4}) == '{"A":4,"a":2,"b":1,"ä":3}')
        local list = json.decode("[1]")
        list[1] = nil
        assert(json.encode(list) == "[]")
        assert(json.encode(setmetatable({x = 1}, {__index = {y = 2}})) == '{"x":1}')
        assert(json.encode(nil) == "null")
        assert(json.encode({[3] = 3, [1] = 1, [2] = 2}) == "[1,2,3]")
    "#);
}

#[test]
fn numbers_are_written_as_integers_where_they_are() {
    run(r#"
        assert(json.encode(1763760000123456) == "1763760000123456")
        assert(json.encode(1e15) == "1000000000000000")
        assert(json.encode(2^53) == "9007199254740992")
        assert(json.encode(-0.0) == "0" or json.encode(-0.0) == "-0.0")
        assert(json.encode(0.1) == "0.1")
        assert(json.encode(2^63) == "9.223372036854776e+18", json.encode(2^63))
    "#);
}

#[test]
fn what_cannot_be_written_is_named_with_its_path() {
    run(r#"
        local function refused(value, wanted)
            local encoded, problem = pcall(json.encode, value)
            assert(not encoded, "encoded: " .. tostring(problem))
            assert(type(problem) == "string" and problem:find(wanted, 1, true), problem)
        end
        refused(print, "json.encode: a function has no JSON")
        refused({a = {1, {b = print}}}, "a function has no JSON, at a[2].b")
        refused(0/0, "NaN has no JSON")
        refused({1/0}, "inf has no JSON, at [1]")
        refused("\255", "not UTF-8")
        refused({["\255"] = 1}, "not UTF-8")
        refused({1, nil, 3}, "an array with holes")
        refused({1, x = 2}, "both names and numbers")
        refused({[0] = 1}, "number")
        refused({[1.5] = 1}, "number")
        refused({[true] = 1}, "boolean")
        refused(coroutine.create(print), "thread")
        local cycle = {}
        cycle[1] = cycle
        refused(cycle, "more than 127 tables within each other")
    "#);
}

#[test]
fn what_cannot_be_read_has_line_and_column() {
    run(r#"
        local function refused(text, wanted)
            local decoded, problem = pcall(json.decode, text)
            assert(not decoded, "decoded: " .. tostring(text))
            assert(type(problem) == "string" and problem:find(wanted, 1, true), problem)
        end
        refused("", "json.decode: EOF while parsing a value at line 1 column 0")
        refused("[1,\n 2,]", "at line 2 column 4")
        refused("{} {}", "trailing characters")
        refused("{'a':1}", "key must be a string")
        refused("[01]", "at line 1")
        refused("[NaN]", "at line 1")
        refused("1e999", "out of range")
        refused('"\255"', "at line 1")
        refused('"\\ud800"', "at line 1")
        refused("[" .. ("["):rep(200), "recursion limit")
        refused(5, "expected a string, not a number")
        refused(nil, "expected a string, not a nil")
    "#);
}

#[test]
fn depth_is_the_same_in_both_directions() {
    let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
    assert_eq!(again(&text), text);
}

#[test]
fn an_error_has_the_line_of_the_call() {
    let mut loaded = Service::load(
        "local json = require('moonwire.json')\n\
         function s.onMessage(h, o, m)\n\
           local value = json.decode(m)\n\
           return true\n\
         end",
    );
    let error = loaded.say("{").unwrap_err();
    assert_eq!(error.line(), Some(8), "{error}");
}

#[test]
fn more_items_than_references_of_the_machine() {
    run(r#"
        local many = {}
        for i = 1, 100000 do many[i] = {tostring(i)} end
        local back = json.decode(json.encode(many))
        assert(#back == 100000 and back[100000][1] == "100000")
        local named = {}
        for i = 1, 100000 do named["k" .. i] = {i} end
        local again = json.decode(json.encode(named))
        assert(again.k100000[1] == 100000)
    "#);
}

#[test]
fn a_finalizer_may_encode_while_a_text_is_made() {
    run(r#"
        local finished = 0
        for i = 1, 20000 do
            local proxy = newproxy(true)
            getmetatable(proxy).__gc = function()
                assert(json.encode({a = {1}}) == '{"a":[1]}')
                finished = finished + 1
            end
            local text = json.encode({b = {x = i, y = "z" .. i}})
            assert(text == '{"b":{"x":' .. i .. ',"y":"z' .. i .. '"}}')
        end
        assert(finished > 0)
    "#);
}

#[test]
fn a_text_that_would_be_too_long_is_refused() {
    Service::load(
        r#"local text, t = ("x"):rep(2^20), {}
        for i = 1, 400 do
          t[i] = text
        end
        local ok, problem = pcall(require("moonwire.json").encode, t)
        assert(not ok and problem:find("more than 268435456 bytes", 1, true), problem)"#,
    );
}
