use moonwire_lua::{Effect, Opcode, Outcome, Refusal};

use crate::harness::{Service, handler};

/// CBOR of a map with these texts and values, each already CBOR.
fn map(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0xa0 + entries.len() as u8];
    for (key, value) in entries {
        bytes.push(0x60 + key.len() as u8);
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

fn deliver(service: &mut Service, message: &[u8]) -> Outcome {
    service
        .instance
        .message(handler(1), Opcode::Binary, message, &mut service.effects)
        .unwrap()
}

#[test]
fn a_message_reaches_the_service_with_its_kind() {
    let mut service = Service::lapps(
        "function s.onMessage(h, kind, m)
            return ws:send(h, 1, kind .. ' ' .. tostring(m))
        end",
    );
    let (one, method, params) = (&[1][..], &b"\x61m"[..], &[0x81, 2][..]);
    let base = [("lapps", one), ("method", method)];
    for (more, answer) in [
        (vec![("cid", one)], r#"1 {"cid":1,"lapps":1,"method":"m"}"#),
        (
            vec![("cid", one), ("params", params)],
            r#"2 {"cid":1,"lapps":1,"method":"m","params":[2]}"#,
        ),
        (vec![], r#"3 {"lapps":1,"method":"m"}"#),
        (
            vec![("params", params)],
            r#"4 {"lapps":1,"method":"m","params":[2]}"#,
        ),
        (
            vec![("params", &[0x80][..])],
            r#"3 {"lapps":1,"method":"m","params":[]}"#,
        ),
    ] {
        let message = map(&[&base[..], &more].concat());
        assert_eq!(deliver(&mut service, &message), Outcome::Continue);
        assert_eq!(service.sent(), [answer]);
    }
}

#[test]
fn what_is_no_message_is_refused_and_does_not_reach_the_service() {
    let mut service = Service::lapps("function s.onMessage() error('it did') end");
    let refused = |code, reason: &str| {
        Outcome::Refused(Refusal {
            code,
            reason: reason.to_owned(),
        })
    };
    let text = service.instance.message(
        handler(1),
        Opcode::Text,
        b"{\"lapps\":1,\"method\":\"m\"}",
        &mut service.effects,
    );
    assert_eq!(text.unwrap(), refused(1003, "the LAppS protocol is binary"));
    assert_eq!(
        deliver(&mut service, &[0x81]),
        refused(1007, "no CBOR: end of input bytes at byte 1")
    );
    assert_eq!(
        deliver(&mut service, &map(&[("lapps", &[1])])),
        refused(1002, "`method` must be a string")
    );
    let Outcome::Refused(refusal) = deliver(&mut service, &[0x81; 1000]) else {
        panic!("a deep message reached the service");
    };
    assert_eq!(refusal.code, 1007);
    assert!(service.effects.is_empty());
}

#[test]
fn a_document_is_sent_as_cbor_if_it_is_a_message() {
    let mut service = Service::lapps(
        "function s.onMessage(h, kind, m)
            local r = nljson.decode('{\"cid\":0,\"status\":1,\"result\":[]}')
            r.result[1] = m.params
            assert(ws:send(h, r) == true)
            r.cid = 3
            local ok, problem = ws:send(h, r)
            assert(ok == false and problem:find('`message`', 1, true), problem)
            ok, problem = ws:send(h, {})
            assert(ok == false and problem:find('not a table', 1, true), problem)
            ok, problem = ws:send(h)
            assert(ok == false and problem:find('not a nil', 1, true), problem)
            ok, problem = ws:send(h + 1, nljson.decode('{\"cid\":1,\"status\":1,\"message\":[]}'))
            assert(ok == false and problem:find('no live connection', 1, true), problem)
            return true
        end",
    );
    let request = map(&[
        ("lapps", &[1]),
        ("method", b"\x61m"),
        ("params", &[0x81, 0x07]),
    ]);
    assert_eq!(deliver(&mut service, &request), Outcome::Continue);
    let sent: Vec<_> = service.effects.iter().collect();
    let [
        Effect::Send {
            opcode, payload, ..
        },
    ] = sent[..]
    else {
        panic!("one message is sent, not {sent:?}");
    };
    assert_eq!(opcode, Opcode::Binary);
    // What came as an integer goes as one; what Lua wrote is a float.
    let answer = map(&[
        ("cid", &[0]),
        ("result", &[0x81, 0x81, 0x07]),
        ("status", &[1]),
    ]);
    assert_eq!(payload, answer);
}

/// Which form is meant is told by the arguments, not by the protocol of the service.
#[test]
fn a_raw_service_may_send_documents() {
    let mut raw = Service::load(
        "function s.onMessage(h, o, m)
            return ws:send(h, nljson.decode('{\"cid\":5,\"status\":1,\"message\":[\"x\"]}'))
        end",
    );
    raw.say("x").unwrap();
    assert_eq!(raw.sent().len(), 1);
}
