use std::time::Instant;

use super::*;
use crate::source::ServiceSource;

fn machine() -> (Lua, TimeLimit) {
    let lua = crate::machine::create(&ServiceSource::new("s", ".")).unwrap();
    let time = TimeLimit::new(&lua).unwrap();
    (lua, time)
}

const LIMIT: Duration = Duration::from_millis(30);

#[test]
fn hooks_stop_compiled_loops_in_this_build() {
    assert!(is_able(), "it was built without LUAJIT_ENABLE_CHECKHOOK");
}

#[test]
fn what_does_not_end_is_stopped_and_the_machine_goes_on() {
    let (lua, time) = machine();
    let endless = [
        "while true do end",
        "local n = 0 while true do n = n + 1 end",
        "while true do pcall(function() while true do end end) end",
        "pcall(function() while true do pcall(error) end end) return 1",
        "xpcall(function() while true do end end, function() while true do end end)",
        "coroutine.wrap(function() while true do end end)()",
        "local c = coroutine.create(function() while true do end end)
         while true do coroutine.resume(c) end",
        "local t = {} while true do t = {t, {}, tostring(t)} if #t > 5 then break end end",
        "while true do local s = ('x'):rep(1000) .. os.time() end",
        "local function f() return f() end return f()",
        "for s in function() return 1 end do end",
        "table.sort({3, 1, 2, 5, 4}, function() while true do end end)",
        "(('x'):rep(100)):gsub('x', function() while true do end end)",
        "return ('a'):rep(5000):find('.-.-.-.-.-b')",
        "return ('a'):rep(60):gsub(('a?'):rep(60) .. ('a'):rep(60), '')",
        "while true do pcall(string.match, ('a'):rep(5000), '.-.-.-.-.-b') end",
    ];
    for code in endless {
        let function = lua.load(code).into_function().unwrap();
        let ending = time.run(Some(LIMIT), || function.call::<()>(()));
        let error = ending.result.expect_err(code).to_string();
        assert!(ending.late.is_some(), "{code}");
        assert!(error.contains("it took too long"), "{code}: {error}");
        let sum: u32 = time
            .run(Some(LIMIT), || lua.load("return 1 + 1").eval())
            .result
            .unwrap();
        assert_eq!(sum, 2, "{code}");
    }
}

#[test]
fn the_error_begins_with_the_line() {
    let (lua, time) = machine();
    let chunk = lua
        .load("local n = 0\nwhile true do\nn = n + 1\nend")
        .set_name("@a.lua");
    let error = time.run(Some(LIMIT), || chunk.exec()).result.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("a.lua:2: it took") || text.contains("a.lua:3: it took"),
        "{text}"
    );
}

#[test]
fn what_blocks_on_purpose_does_not_count() {
    let (lua, time) = machine();
    let sleep = lua.create_function(|_, ()| {
        outside(|| std::thread::sleep(3 * LIMIT));
        Ok(())
    });
    let sleep = sleep.unwrap();
    let code = lua
        .load("local sleep = ... sleep() return 1")
        .into_function()
        .unwrap();
    let ending = time.run(Some(LIMIT), || code.call::<u32>(&sleep));
    assert_eq!(ending.result.unwrap(), 1);
    assert!(ending.late.is_none());
    let code = lua
        .load("local sleep = ... sleep() while true do end")
        .into_function()
        .unwrap();
    let ending = time.run(Some(LIMIT), || code.call::<u32>(&sleep));
    assert!(ending.late.is_some() && ending.result.is_err());
}

#[test]
fn every_thread_has_a_limit_of_its_own() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (lua, time) = machine();
                let code = lua.load("while true do end").into_function().unwrap();
                let began = Instant::now();
                let ending = time.run(Some(LIMIT), || code.call::<()>(()));
                assert!(ending.late.is_some() && began.elapsed() >= LIMIT);
                let code = lua
                    .load("for i = 1, 1e6 do end return 7")
                    .into_function()
                    .unwrap();
                assert_eq!(time.run(None, || code.call::<u32>(())).result.unwrap(), 7);
            });
        }
    });
}
