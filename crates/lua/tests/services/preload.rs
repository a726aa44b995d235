use std::time::{Duration, Instant};

use moonwire_lua::{Instance, Module, ServiceSource};

use crate::harness::{folder, service};

/// Loads a service that asks for these modules; an assertion of its code that fails, fails here.
fn run(modules: &[Module], code: &str) {
    let folder = folder(&[("s.lua", &service(code))]);
    let source = ServiceSource {
        preload: modules.to_vec(),
        ..ServiceSource::new("s", folder.path())
    };
    Instance::load(&source).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn modules_are_there_only_if_asked_for() {
    for module in Module::ALL {
        let name = module.name();
        run(&[], &format!("assert({name} == nil)"));
        run(&[module], &format!("assert(type({name}) == 'table')"));
    }
}

#[test]
fn time_is_in_milliseconds_since_the_epoch() {
    run(
        &[Module::Time],
        "local now = time.now()
        assert(now == math.floor(now))
        assert(math.abs(now / 1000 - os.time()) < 2, now)",
    );
}

#[test]
fn murmur_hashes_as_libstdcxx_does() {
    run(
        &[Module::Murmur],
        r#"
        assert(murmur.hashstr("") == "553e93901e462a6e")
        assert(murmur.hashstr("a") == "454ddee488c1ed6b")
        assert(murmur.hashnum("a") == 4993892634952068459)
        -- A number is its own hash, without its fraction.
        assert(murmur.hashstr(255.9) == "00000000000000ff")
        assert(murmur.hashnum(7) == 7)
        assert(murmur.hashstr(-1) == "ffffffffffffffff")
        for _, wrong in ipairs({{}, {true}, {"a", "b"}, {{}}}) do
          local ok, problem = pcall(murmur.hashstr, unpack(wrong))
          assert(not ok and problem:find("must be one string or number", 1, true), problem)
        end
        "#,
    );
}

/// As while a configuration is only checked.
#[test]
fn without_a_server_around_it_a_service_cannot_connect() {
    run(
        &[Module::Cws],
        r#"local socket, problem = cws:new("ws://127.0.0.1:1/", {})
        assert(socket == nil)
        assert(problem == "cws:new(uri, callbacks): no connections can be made here", problem)
        local ok, problem = cws:send(1, "x", 1)
        assert(ok == false and problem:find("no live connection", 1, true), problem)
        assert(select('#', cws:eventLoop()) == 0)"#,
    );
}

#[test]
fn nap_sleeps_at_least_as_long_as_asked() {
    let begin = Instant::now();
    run(
        &[Module::Nap],
        "local n = nap:new()
        n:usleep(20000)
        n:nsleep(20000000)
        n:sleep(0)",
    );
    assert!(begin.elapsed() >= Duration::from_millis(40));
}

#[test]
fn nap_takes_wrong_arguments_as_lapps_does() {
    run(
        &[Module::Nap],
        r#"local n = nap:new()
        assert(n:sleep() == "Usage: nap:sleep(seconds)")
        assert(n:usleep(1, 2) == "Usage: nap:usleep(microseconds)")
        for _, wrong in ipairs({"x", -1, 0/0, 1/0, true}) do
          assert(n:sleep(wrong) == nil)
        end"#,
    );
}

/// The real libpam, with the services of this system; `login` in the module's own tests has others.
#[test]
fn pam_auth_wants_three_texts() {
    run(
        &[Module::PamAuth],
        r#"
        local usage = "Usage: pam_auth:login(service, user, password)"
        for _, wrong in ipairs({{}, {"a"}, {"a", "b"}, {"", "b", "c"}, {"a", "", "c"}, {"a",
        "b", ""},
            {1, "b", "c"}, {"a", {}, "c"}, {"a", "b", true}, {"a\0b", "b", "c"}, {"a", "b\0", "c"},
            {"a", "b", "\0"}}) do
          local ok, problem = pam_auth:login(unpack(wrong))
          assert(ok == false and problem == usage, tostring(problem))
        end
        assert(pam_auth.login("a", "b", "c") == false)
        "#,
    );
}
