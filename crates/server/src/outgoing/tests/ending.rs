//! How connections end, and what callbacks may do.

use std::sync::Arc;

use moonwire_lua::LoadOptions;

use super::peer::{Manner, RawPeer, first_frame};
use super::{LOOP, Outgoing, Peer, logged, run, run_service};

/// Connects to a peer that does this and tells how it ended: what was called with how many values
/// behind the handler, and the first of these.
fn end_of(manner: Manner) -> (String, Vec<u8>) {
    let peer = RawPeer::start(manner);
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    run(&format!(
        "local told = {{}}
        local function tell(name)
          return function(handler, ...)
            told[#told + 1] = name .. '/' .. select('#', ...) .. '/' .. tostring((...))
          end
        end
        local socket = assert(cws:new('{}', {{
          onmessage = tell('onmessage'), onerror = tell('onerror'), onclose = tell('onclose'),
        }}))
        loop(function() return told[1] end)
        for _ = 1, 20 do cws:eventLoop() end
        local file = assert(io.open('{}', 'wb'))
        file:write(table.concat(told, '\\n'))
        file:close()",
        peer.url,
        told.display()
    ));
    let (_, rest) = peer.finish();
    (
        String::from_utf8_lossy(&std::fs::read(told).unwrap()).into_owned(),
        rest,
    )
}

#[test]
fn each_end_is_told_once() {
    for (manner, told, answer) in [
        (
            Manner::Listen(b"\x88\x00"),
            "onclose/0/nil",
            Some((8, &b""[..])),
        ),
        (
            Manner::Listen(b"\x88\x05\x03\xe8bye"),
            "onclose/1/\u{3}\u{fffd}bye",
            Some((8, b"\x03\xe8")),
        ),
        (
            Manner::Leave(b""),
            "onerror/1/the peer ended the stream without a close frame",
            None,
        ),
        (
            Manner::Listen(b"\x83\x00"),
            "onerror/1/the opcode 0x3 is reserved",
            Some((8, b"\x03\xea")),
        ),
        (
            Manner::Listen(b"\x82\x7f\0\0\0\0\x01\0\0\x01"),
            "onerror/1/a message of at least 16777217 bytes exceeds the limit of 16777216",
            Some((8, b"\x03\xf1")),
        ),
    ] {
        let (found, rest) = end_of(manner);
        assert_eq!(found, told);
        if let Some((opcode, code)) = answer {
            let (found, payload) = first_frame(&rest);
            assert_eq!(found, opcode, "{told}");
            assert!(payload.starts_with(code), "{told}: {payload:x?}");
        }
    }
}

#[test]
fn many_messages_of_one_read_come_one_by_one_and_before_the_end() {
    let frames = [b"\x82\x01a".repeat(5000), b"\x88\x02\x03\xe8".to_vec()].concat();
    let peer = RawPeer::start(Manner::Listen(frames.leak()));
    run(&format!(
        "local count, ended = 0, false
        local socket = cws:new('{}', {{
          onmessage = function() count = count + 1 end,
          onclose = function() ended = true end,
        }})
        loop(function()
          local before = count
          cws:eventLoop()
          assert(count - before <= 2048, count - before)
          return ended
        end)
        assert(count == 5000, count)",
        peer.url
    ));
    peer.finish();
}

#[test]
fn pings_are_answered_without_the_service() {
    let peer = RawPeer::start(Manner::Listen(b"\x89\x02hi\x81\x00"));
    run(&format!(
        "local came
        local socket = cws:new('{}', {{ onmessage = function() came = true end }})
        loop(function() return came end)
        socket:close()",
        peer.url
    ));
    let (_, rest) = peer.finish();
    assert_eq!(first_frame(&rest), (10, b"hi".to_vec()));
    assert_eq!(first_frame(&rest[8..]), (8, b"\x03\xe8".to_vec()));
}

#[test]
fn a_socket_that_is_collected_is_closed_unless_its_callbacks_have_it() {
    let (lost, kept) = (
        RawPeer::start(Manner::Listen(b"")),
        RawPeer::start(Manner::Listen(b"")),
    );
    run(&format!(
        "local open = 0
        local function connect(url, has_itself)
          local socket
          socket = cws:new(url, {{
            onopen = function()
              open = open + 1
              return has_itself
            end,
            onclose = has_itself and function() return socket end,
          }})
          return socket
        end
        local sockets = {{ connect('{}', true), connect('{}') }}
        loop(function() return open == 2 end)
        setmetatable(sockets, {{ __mode = 'v' }})
        collectgarbage()
        collectgarbage()
        assert(sockets[1] and not sockets[2])
        cws:eventLoop()",
        kept.url, lost.url
    ));
    // One was closed by itself, the other at the end of the service.
    for (peer, code) in [(lost, b"\x03\xe8"), (kept, b"\x03\xe9")] {
        assert_eq!(first_frame(&peer.finish().1), (8, code.to_vec()));
    }
}

#[test]
fn connections_are_made_and_closed_in_callbacks() {
    let peer = Peer::start("ws:close(h, 4001, m) return true");
    let (script, echo) = (peer.url("script"), peer.url("echo"));
    run(&format!(
        "local sockets, ends, nested, last = {{}}, 0, 0, 0
        local function connect()
          local socket, mine
          socket = assert(cws:new('{script}', {{
            onopen = function(handler)
              assert(handler > last, 'handlers are not used again')
              last = handler
              mine = handler
              cws:send(handler, 'bye', 1)
              local inner
              inner = assert(cws:new('{echo}', {{
                onopen = function(handler)
                  last = handler
                  cws:send(handler, 'x', 1)
                end,
                onmessage = function()
                  nested = nested + 1
                  inner:close()
                end,
                onclose = function() error('it was closed here') end,
                onerror = function(_, text) error(text) end,
              }}))
            end,
            onerror = function(_, text) error(text) end,
            onclose = function(handler, payload)
              assert(handler == mine and payload == '\\15\\161bye')
              ends = ends + 1
              if ends < 3 then connect() end
            end,
          }}))
          sockets[#sockets + 1] = socket
        end
        connect()
        loop(function() return ends == 3 and nested == 3 end)
        -- A turn within a turn is one, too.
        local deep
        local outer = cws:new('{echo}', {{ onopen = function() cws:eventLoop() deep = true end }})
        loop(function() return deep end)
        outer:close()"
    ));
}

#[test]
fn an_error_of_a_callback_is_logged_and_harms_nobody() {
    let peer = Peer::start("return true");
    let url = peer.url("echo");
    let log = logged(|| {
        run(&format!(
            "local got = 0
            local function connect(onmessage)
              return cws:new('{url}', {{
                onopen = function(handler) cws:send(handler, 'x', 1) end,
                onmessage = onmessage,
              }})
            end
            local broken = connect(function(handler)
              cws:send(handler, 'x', 1)
              error('on purpose')
            end)
            local sound = connect(function(handler)
              got = got + 1
              cws:send(handler, 'x', 1)
            end)
            local odd = connect(function() error(setmetatable({{}}, {{ __tostring = error }})) end)
            loop(function() return got == 50 end)"
        ));
    });
    assert!(log.contains("service \"s\": onmessage: "), "{log}");
    assert!(log.contains("s.lua:11: on purpose"), "{log}");
    assert!(log.matches("on purpose").count() > 1, "it goes on: {log}");
    assert!(
        log.contains("an error without a text") || log.contains("error in error"),
        "{log}"
    );
    assert!(!log.contains("[moonwire]"), "{log}");
}

#[test]
fn a_queue_that_nobody_reads_is_full_at_some_time() {
    let peer = RawPeer::start(Manner::Stall);
    run(&format!(
        "local full
        local socket = cws:new('{}', {{
          onopen = function(handler)
            local data = ('x'):rep(1048576)
            for _ = 1, 64 do
              local ok, problem = cws:send(handler, data, 2)
              if not ok then
                full = problem
                break
              end
            end
          end,
        }})
        loop(function() return full end)
        assert(full:find('16777216 bytes', 1, true), full)",
        peer.url
    ));
    peer.finish();
}

/// Of a service without room for it only the connection ends.
#[test]
fn a_message_that_does_not_fit_the_memory_ends_its_connection() {
    let peer = Peer::start("return ws:send(h, 2, ('x'):rep(8 * 1024 * 1024))");
    let code = format!(
        "{}local s = {{}} function s.init() end function s.run()
          local problem
          local socket = cws:new('{}', {{
            onopen = function(handler) cws:send(handler, 'x', 1) end,
            onmessage = function(_, data) problem = 'it fits' end,
            onerror = function(_, text) problem = text end,
          }})
          loop(function() return problem end)
          assert(problem:find('does not fit', 1, true), problem)
        end return s",
        LOOP,
        peer.url("script")
    );
    let options = LoadOptions {
        memory_bytes_max: Some(4 * 1024 * 1024),
        connector: Some(Arc::new(Outgoing::default())),
        ..LoadOptions::default()
    };
    run_service("s", &code, &options).unwrap_or_else(|error| panic!("{error}"));
}
