use moonwire_lua::LoadOptions;

use crate::harness::{Service, service};

/// Runs Lua code; an assertion that fails there fails here.
fn run(code: &str) {
    Service::load(&format!("{HELP}\n{code}"));
}

const HELP: &str = r#"
local function same(found, wanted)
  if found ~= wanted then
    error("expected " .. tostring(wanted) .. " but found " .. tostring(found), 2)
  end
end
local function fails(text, f, ...)
  local ok, problem = pcall(f, ...)
  if ok then error("expected an error with " .. text, 2) end
  if type(problem) ~= "string" or not problem:find(text, 1, true) then
    error("expected an error with " .. text .. " but it is " .. tostring(problem), 2)
  end
end
"#;

#[test]
fn a_nested_write_shows_in_the_root() {
    run(r#"
        local r = nljson.decode('{"a":[{"b":0}]}')
        r.a[1].b = 7
        same(nljson.encode(r), '{"a":[{"b":7.0}]}')
        same(tostring(r), '{"a":[{"b":7.0}]}')
        -- A number that Lua wrote is a float of 64 bits on the wire.
        local one = nljson.decode('{}')
        one.n = 1
        same(nljson.to_cbor(one), "\161\97n\251\63\240\0\0\0\0\0\0")
    "#);
}

#[test]
fn a_nested_handle_keeps_what_it_names() {
    run(r#"
        local inner = nljson.decode('{"a":{"b":[1]}}').a
        collectgarbage() collectgarbage()
        inner.b[2] = true
        same(tostring(inner), '{"b":[1,true]}')
        -- What is overwritten lives on for who holds it.
        local root = nljson.decode('{"a":{"b":1}}')
        local old = root.a
        root.a = 5
        old.b = 2
        same(tostring(root), '{"a":5.0}')
        same(tostring(old), '{"b":2.0}')
    "#);
}

#[test]
fn values_are_read_as_values_of_lua() {
    run(r#"
        local r = nljson.decode('{"n":null,"t":true,"i":-3,"f":1.5,"s":"ü","a":[],"o":{}}')
        same(r.n, nil) same(r.t, true) same(r.i, -3) same(r.f, 1.5) same(r.s, "ü")
        same(type(r.a), "userdata") same(type(r.o), "userdata")
        same(r.missing, nil) same(r.a[1], nil) same(r.a[0], nil) same(r.a[-1], nil)
        same(r["s"], "ü")
    "#);
}

#[test]
fn tables_become_arrays_and_objects() {
    run(r#"
        local r = nljson.decode('{}')
        local function as(value) r.x = value return nljson.encode(r):match('^{"x":(.*)}$') end
        same(as({}), '[]')
        same(as({1, 2}), '[1.0,2.0]')
        same(as({x = 1}), '{"x":1.0}')
        same(as({1, x = 2}), '{"1":1.0,"x":2.0}')
        same(as({[2] = "b"}), '[null,"b"]')
        same(as({[1.5] = 1}), '{"1.5":1.0}')
        same(as({[-1] = 1}), '{"-1":1.0}')
        same(as({{}, {a = {}}}), '[[],{"a":[]}]')
        same(as(nil), 'null') same(as(print), 'null') same(as(coroutine.create(print)), 'null')
        same(as("a\0b"), '"a\\u0000b"')
        -- A document is copied.
        local d = nljson.decode('[1]')
        same(as(d), '[1]')
        d[1] = 2
        same(nljson.encode(r), '{"x":[1]}')
        r.x = r
        same(nljson.encode(r), '{"x":{"x":[1]}}')
        fails("cannot be a key", as, {[print] = 1})
        local loop = {} loop.loop = loop
        fails("more than 127 containers", as, loop)
        same(nljson.encode(r), '{"x":{"x":[1]}}')
    "#);
}

#[test]
fn arrays_grow_with_nulls_but_not_without_a_bound() {
    run(r#"
        local a = nljson.decode('[]')
        a[3] = true
        same(tostring(a), '[null,null,true]')
        fails("more than 65536 beyond the end", function() a[1e9] = 1 end)
        fails("integer from 1", function() a[0] = 1 end)
        fails("integer from 1", function() a[1.5] = 1 end)
        same(tostring(a), '[null,null,true]')
    "#);
}

#[test]
fn the_wrong_container_is_an_error_at_the_line_of_the_service() {
    run(r#"
        local o, a, t = nljson.decode('{}'), nljson.decode('[]'), nljson.decode('"text"')
        fails("s.lua:", function() return o[1] end)
        fails("must be a string to be read, not a number", function() return o[1] end)
        fails("must be a string to be written", function() o[1] = 1 end)
        fails("index of an array", function() return a.x end)
        fails("index of an array", function() a.x = 1 end)
        fails("a string has nothing in it", function() return t.x end)
        fails("a string has nothing in it", function() t.x = 1 end)
        fails("attempt", function() return #o end)
    "#);
}

#[test]
fn find_and_erase() {
    run(r#"
        local r = nljson.decode('{"a":1,"7":"seven","n":null,"l":[10,20,30]}')
        same(nljson.find(r, "a"), 1)
        same(nljson.find(r, 7), "seven")
        same(nljson.find(r, "n"), nil)
        same(nljson.find(r, "missing"), nil)
        same(nljson.find(r.l, 1), nil)
        same(nljson.find(r, 70368744177663), nil)
        same(nljson.erase(r, "a"), true)
        same(nljson.erase(r, "a"), false)
        same(nljson.erase(r, 7), false)
        same(nljson.erase(r.l, 0), true)
        same(tostring(r.l), '[20,30]')
        same(nljson.erase(r.l, 2), false)
        same(nljson.erase(r.l, "x"), false)
        same(tostring(r), '{"7":"seven","l":[20,30],"n":null}')
    "#);
}

#[test]
fn typename_and_empty() {
    run(r#"
        for text, name in pairs({['{}'] = "object", ['[]'] = "array", ['"s"'] = "string",
            ['1'] = "number", ['true'] = "boolean", ['null'] = "null"}) do
          same(nljson.typename(nljson.decode(text)), name)
          same(nljson.empty(nljson.decode(text)), text == '{}' or text == '[]')
        end
        same(nljson.empty(nljson.decode('[0]')), false)
        fails("s.lua:", nljson.typename and function() nljson.typename("text") end)
        fails("expected a value of nljson, not a string", nljson.typename, "text")
        fails("expected a value of nljson, not a table", nljson.empty, {})
        fails("expected a value of nljson, not a userdata", nljson.typename, io.stdout)
        fails("expected a value of nljson, not a nil", nljson.encode)
        fails("expected a value of nljson, not a number", nljson.find, 1, "a")
    "#);
}

#[test]
fn foreach_and_traverse_keep_their_order() {
    run(r#"
        local function listed(walk, text)
          local seen = {}
          walk(nljson.decode(text), function(key, value)
            seen[#seen + 1] = tostring(key) .. "=" .. tostring(value)
          end)
          return table.concat(seen, " ")
        end
        same(listed(nljson.foreach, '{"b":1,"a":[2],"c":null}'), 'a=[2] b=1 c=nil')
        same(listed(nljson.foreach, '["x",{"y":1}]'), '1=x 2={"y":1}')
        same(listed(nljson.foreach, '5'), '')
        same(listed(nljson.traverse, '{"b":{"c":[7,8]},"a":1}'),
          'a=1 1=7 2=8 c=[7,8] b={"c":[7,8]}')
        fails("my own", nljson.foreach, nljson.decode('[1]'), function() error("my own") end)
        -- What a visit takes out is not visited.
        local r, seen = nljson.decode('{"a":1,"b":2}'), ""
        nljson.foreach(r, function(key) seen = seen .. key nljson.erase(r, "b") end)
        same(seen, "a")
    "#);
}

#[test]
fn text_is_written_and_refused() {
    run(r#"
        local r = nljson.decode('{"b":[1,{}],"a":"x"}')
        same(nljson.encode_pretty(r, 2), '{\n  "a": "x",\n  "b": [\n    1,\n    {}\n  ]\n}')
        same(nljson.encode_pretty(r), nljson.encode_pretty(r, 2))
        same(nljson.encode_pretty(r, 0), nljson.encode(r))
        fails("indent must be", nljson.encode_pretty, r, -1)
        fails("indent must be", nljson.encode_pretty, r, "x")
        fails("line 1", nljson.decode, '{"a":')
        fails("s.lua:", function() nljson.decode('nul') end)
        fails("expected a string, not a nil", nljson.decode)
        r.a = "\255"
        fails("not UTF-8", nljson.encode, r)
        fails("not UTF-8", tostring, r)
        same(nljson.to_cbor(r):sub(1, 5), "\162aa\97\255")
    "#);
}

#[test]
fn cbor_goes_both_ways() {
    run(r#"
        local r = nljson.decode('{"cid":5,"message":["x"]}')
        same(nljson.to_cbor(r), "\162\99cid\5\103message\129\97x")
        same(tostring(nljson.from_cbor(nljson.to_cbor(r))), tostring(r))
        same(tostring(nljson.from_cbor("\159\249\60\0\250\63\128\0\0\255")), "[1.0,1.0]")
        fails("byte", nljson.from_cbor, "\65a")
        fails("byte", nljson.from_cbor, "\192\0")
        fails("follow", nljson.from_cbor, "\1\2")
    "#);
}

#[test]
fn files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    std::fs::write(&path, "{\"a\": 1}").unwrap();
    std::fs::write(folder.path().join("b.json"), "{").unwrap();
    let folder = folder.path().display();
    run(&format!(
        r#"
        same(tostring(nljson.decode_file("{folder}/a.json")), '{{"a":1}}')
        fails("b.json: EOF", nljson.decode_file, "{folder}/b.json")
        fails("missing.json: No such file", nljson.decode_file, "{folder}/missing.json")
        fails("path must be a string", nljson.decode_file)
        fails("s.lua:", function() nljson.decode_file("{folder}/missing.json") end)
        "#
    ));
}

/// The machine sees handles of some bytes, so its collector has to be told.
#[test]
fn garbage_of_documents_is_collected() {
    let code = "function s.onMessage(h, o, m)
            for i = 1, 300 do nljson.decode(m) end
            return ws:send(h, 1, 'done')
        end";
    let mut service = Service::load(code);
    let text = format!("[{}0]", "1234567,".repeat(10_000));
    assert_eq!(service.ask(&text), "done");
    let bytes = service.instance.memory_bytes();
    assert!(bytes < 32 << 20, "{bytes} bytes after 72 MB of documents");
}

/// Nothing is refused because of what nobody can reach any more.
#[test]
fn garbage_makes_room_for_what_is_written() {
    let options = LoadOptions {
        memory_bytes_max: Some(4 << 20),
        ..LoadOptions::default()
    };
    let code = service(
        "function s.onMessage(h, o, m)
            local kept = nljson.decode('[]')
            local text = ('x'):rep(100000)
            for i = 1, 200 do
                local d = nljson.decode('{}')
                d.text = text
            end
            kept[1] = 1
            return ws:send(h, 1, 'done')
        end",
    );
    let mut service = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    assert_eq!(service.ask("go"), "done");
}

#[test]
fn documents_are_bounded_with_the_memory_of_the_instance() {
    let options = LoadOptions {
        memory_bytes_max: Some(4 << 20),
        ..LoadOptions::default()
    };
    let code = service(
        "local kept = {}
        function s.onMessage(h, o, m)
            if m == 'forget' then
                kept = {}
            else
                kept[#kept + 1] = nljson.decode(m)
            end
            return ws:send(h, 1, 'kept')
        end",
    );
    let mut service = Service::try_load(&[("s.lua", &code)], &options).unwrap();
    let text = format!("[{}0]", "0,".repeat(10_000));
    let mut kept = 0;
    let failure = loop {
        match service.say(&text) {
            Ok(_) => kept += 1,
            Err(failure) => break failure,
        }
        assert!(kept < 100, "the bound does not hold");
    };
    assert!(
        failure.to_string().contains("not enough memory"),
        "{failure}"
    );
    assert!(kept > 10, "{kept}");
    assert_eq!(service.ask("forget"), "kept");
    assert_eq!(service.ask(&text), "kept");
}

/// Many times what the document takes, and nothing that the machine knows of.
#[test]
fn a_text_that_would_be_too_long_is_refused() {
    let code = r#"
        local document = nljson.decode(("["):rep(126) .. ("0,"):rep(2e4) .. "0" .. ("]"):rep(126))
        local ok, problem = pcall(nljson.encode_pretty, document, 32)
        assert(not ok and problem:find("not enough memory", 1, true), problem)
        assert(#nljson.encode(document) == 2 * 126 + 2 * 2e4 + 1)"#;
    let options = LoadOptions {
        memory_bytes_max: Some(16 << 20),
        ..LoadOptions::default()
    };
    let loaded = Service::try_load(&[("s.lua", &service(code))], &options);
    loaded.unwrap_or_else(|error| panic!("{error}"));
}
