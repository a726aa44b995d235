use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use moonwire_lua::{
    Broadcasts, Effect, Handler, LoadOptions, Module, ScriptError, ServiceSource, Standalone,
    StopFlag,
};

use crate::harness::{Service, folder, handler};

/// Keeps what was broadcast.
#[derive(Clone, Default)]
struct Heard(Rc<RefCell<Vec<Broadcast>>>);

/// Channel and payload.
type Broadcast = (u64, Vec<u8>);

impl Broadcasts for Heard {
    fn broadcast(&self, channel: u64, payload: Vec<u8>) -> Result<(), String> {
        if channel == 13 {
            return Err("nobody listens".to_owned());
        }
        self.0.borrow_mut().push((channel, payload));
        Ok(())
    }
}

fn load(code: &str, options: &LoadOptions, heard: &Heard) -> Result<Standalone, ScriptError> {
    let folder = folder(&[("s.lua", code)]);
    let source = ServiceSource {
        preload: Module::ALL.to_vec(),
        ..ServiceSource::new("s", folder.path())
    };
    Standalone::load(&source, options, 7, Box::new(heard.clone()))
}

/// Runs `code` as `run`; an assertion that fails there fails here.
fn run(code: &str, options: &LoadOptions) -> Heard {
    let heard = Heard::default();
    let code = format!(
        "local s = {{}} function s.init() s.ready = true end\n\
         function s.run() assert(s.ready)\n{code}\nend return s"
    );
    let mut service = load(&code, options, &heard).unwrap();
    service.init().unwrap();
    service.run().unwrap_or_else(|error| panic!("{error}"));
    heard
}

#[test]
fn it_finds_what_a_standalone_service_has() {
    run(
        "assert(ws == nil)
        assert(must_stop() == false)
        assert(instance_id == '7')
        for _, name in ipairs({'bcast', 'nljson', 'mqr', 'murmur', 'nap', 'time'}) do
          assert(type(_G[name]) == 'table', name)
        end",
        &LoadOptions::default(),
    );
}

#[test]
fn init_and_run_are_mandatory() {
    for (code, missing) in [
        ("return {run = function() end}", "init"),
        ("return {init = function() end}", "run"),
    ] {
        let error = load(code, &LoadOptions::default(), &Heard::default())
            .err()
            .unwrap();
        assert!(error.to_string().contains(missing), "{error}");
    }
}

#[test]
fn a_failure_of_run_has_its_line() {
    let code = "return {init = function() end,\nrun = function() error('on purpose') end}";
    let mut service = load(code, &LoadOptions::default(), &Heard::default()).unwrap();
    service.init().unwrap();
    let error = service.run().unwrap_err().to_string();
    assert!(
        error.contains("s.lua:2") && error.contains("on purpose"),
        "{error}"
    );
    assert!(error.contains("run"), "{error}");
}

#[test]
fn it_runs_until_it_must_stop() {
    let options = LoadOptions::default();
    let stop = options.stop.clone();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        stop.set();
    });
    run(
        "local n = nap:new() while not must_stop() do n:usleep(100) end",
        &options,
    );
    stopper.join().unwrap();
}

#[test]
fn broadcasts_leave_as_they_are_sent() {
    let heard = run(
        "local m = nljson.decode('{\"cid\":5,\"message\":[\"x\"]}')
        local function refused(text, ...)
          local ok, problem = ...
          assert(ok == false and problem:find(text, 1, true), problem)
        end
        refused('no channel 1', bcast:send(1, m))
        assert(bcast:create(1) == true and bcast:create(1) == true)
        assert(bcast:send(1, m) == true)
        m.cid = nil
        refused('cid must be a number', bcast:send(1, m))
        m.cid = 5
        m.message = 'x'
        refused('must be an array', bcast:send(1, m))
        refused('not a table', bcast:send(1, {}))
        refused('must be a number', bcast:create('1'))
        refused('an integer from 0', bcast:create(-1))
        refused('an integer from 0', bcast:create(1.5))
        refused('has no connections', bcast:subscribe(1, 1))
        bcast:create(13)
        m.message = {}
        refused('nobody listens', bcast:send(13, m))
        assert(not pcall(bcast.create, 1))",
        &LoadOptions::default(),
    );
    let wanted = b"\xa2\x63cid\x05\x67message\x81\x61x".to_vec();
    assert_eq!(*heard.0.borrow(), [(1, wanted)]);
}

#[test]
fn a_queue_is_one_for_all_services() {
    let options = LoadOptions::default();
    run(
        "local q = mqr.create('pipe')
        for i = 1, 3 do
          local m = nljson.decode('{\"deep\":[{}]}')
          m.deep[1].n = i
          assert(q:post(m) == true)
          m.deep = nil
        end",
        &options,
    );
    run(
        "local q = mqr.create('pipe')
        assert(mqr.create('other'):try_recv() == nil)
        for i = 1, 3 do
          local m = i < 3 and q:recv() or q:try_recv()
          assert(m.deep[1].n == i, tostring(m))
        end
        assert(q:try_recv() == nil)
        local ok, problem = q:post('text')
        assert(ok == false and problem:find('not a string', 1, true), problem)
        ok, problem = pcall(q.recv)
        assert(not ok and problem:find('with a colon', 1, true), problem)
        ok, problem = mqr.create(7)
        assert(ok == nil and problem:find('must be a string', 1, true), problem)",
        &options,
    );
}

#[test]
fn a_wait_at_a_queue_ends_with_the_order_to_stop() {
    let options = LoadOptions {
        broker: std::sync::Arc::new(moonwire_lua::Broker::new(1)),
        ..LoadOptions::default()
    };
    let (stop, broker): (StopFlag, _) = (options.stop.clone(), options.broker.clone());
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        stop.set();
        broker.wake();
    });
    run(
        "assert(mqr.create('empty'):recv() == nil)
        assert(must_stop() == true)
        local q, m = mqr.create('full'), nljson.decode('1')
        assert(q:post(m) == true)
        local ok, problem = q:post(m)
        assert(ok == false and problem:find('must stop', 1, true), problem)",
        &options,
    );
    stopper.join().unwrap();
}

#[test]
fn a_reactive_service_is_refused_at_a_full_queue() {
    let folder = folder(&[(
        "s.lua",
        &crate::harness::service(
            "local q, m = mqr.create('full'), nljson.decode('1')
            assert(q:post(m) == true)
            local ok, problem = q:post(m)
            assert(ok == false and problem:find('queue is full', 1, true), problem)",
        ),
    )]);
    let source = ServiceSource {
        preload: vec![Module::Mqr],
        ..ServiceSource::new("s", folder.path())
    };
    let options = LoadOptions {
        broker: std::sync::Arc::new(moonwire_lua::Broker::new(1)),
        ..LoadOptions::default()
    };
    moonwire_lua::Instance::load_with(&source, &options).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn subscriptions_and_broadcasts_are_effects_of_a_reactive_service() {
    let mut service = Service::lapps(
        "function s.onMessage(h, kind, m)
            assert(bcast:create(5))
            assert(bcast:subscribe(5, h))
            assert(bcast:send(5, nljson.decode('{\"cid\":5,\"message\":[]}')))
            assert(bcast:unsubscribe(5, h))
            local ok, problem = bcast:subscribe(6, h)
            assert(ok == false and problem:find('no channel 6', 1, true), problem)
            ok, problem = bcast:subscribe(5, h + 1)
            assert(ok == false and problem:find('no live connection', 1, true), problem)
            return bcast:unsubscribe(5, h + 1)
        end",
    );
    let message = b"\xa2\x65lapps\x01\x66method\x61m";
    let Service {
        instance, effects, ..
    } = &mut service;
    let opcode = moonwire_lua::Opcode::Binary;
    let outcome = instance.message(handler(1), opcode, message, effects);
    assert_eq!(outcome.unwrap(), moonwire_lua::Outcome::Continue);
    let one: Handler = handler(1);
    assert_eq!(
        effects.iter().collect::<Vec<_>>(),
        [
            Effect::Subscribe {
                handler: one,
                channel: 5
            },
            Effect::Broadcast {
                channel: 5,
                payload: b"\xa2\x63cid\x05\x67message\x80"
            },
            Effect::Unsubscribe {
                handler: one,
                channel: 5
            },
        ]
    );
}

#[test]
fn a_raw_service_has_no_broadcasts() {
    Service::load("assert(bcast == nil and must_stop == nil and instance_id == nil)");
}
