//! The LAppS protocol: which messages a client may send, and which a service.
//!
//! A message is a map in CBOR, sent as one binary message. A client asks with requests, which are
//! answered on channel 0, and tells with notifications, which have a channel and are never
//! answered. A service answers a request with a response, or sends notifications out of order
//! (OON) on any other channel.

use crate::document::{Node, Object};

/// What a client sent. The numbers are what `onMessage` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Client notification without params.
    Notification = 1,
    /// Client notification with params.
    NotificationWithParams = 2,
    /// Request without params.
    Request = 3,
    /// Request with params.
    RequestWithParams = 4,
}

/// What a client's message is, or what is wrong with it, in words short enough for a close frame.
pub(crate) fn classify(message: &Node) -> Result<Kind, &'static str> {
    let Node::Object(message) = message else {
        return Err("the message must be a map");
    };
    if number(message, "lapps") != Some(1.0) {
        return Err("`lapps` must be 1");
    }
    check_method(message)?;
    let has_params = match message.get(b"params") {
        Some(Node::Array(params)) => params.len() > 0,
        _ => false,
    };
    match (message.get(b"cid").map(|cid| cid.as_f64()), has_params) {
        (Some(None), _) => Err("`cid` must be a number"),
        (Some(Some(_)), false) => Ok(Kind::Notification),
        (Some(Some(_)), true) => Ok(Kind::NotificationWithParams),
        (None, false) => Ok(Kind::Request),
        (None, true) => Ok(Kind::RequestWithParams),
    }
}

fn check_method(message: &Object) -> Result<(), &'static str> {
    match message.get(b"method") {
        Some(Node::Text(method)) if method.is_empty() => Err("`method` must not be empty"),
        Some(Node::Text(method)) if method.starts_with(b"_") => {
            Err("`method` must not begin with `_`")
        }
        Some(Node::Text(method)) if method.contains(&b'.') => Err("`method` must have no `.`"),
        Some(Node::Text(_)) => Ok(()),
        _ => Err("`method` must be a string"),
    }
}

/// Whether a service may send this message: a response on channel 0, or a notification on another.
pub(crate) fn check_outbound(message: &Node) -> Result<(), &'static str> {
    let Node::Object(message) = message else {
        return Err("the message must be an object");
    };
    let cid = number(message, "cid").ok_or("`cid` must be a number")?;
    let status = number(message, "status").ok_or("`status` must be 0 or 1")?;
    let is_array = |key: &str| matches!(message.get(key.as_bytes()), Some(Node::Array(_)));
    match (status, cid) {
        (0.0, 0.0) => check_error(message),
        (0.0, _) => Err("an error (status 0) must have cid 0"),
        (1.0, 0.0) if is_array("result") => Ok(()),
        (1.0, 0.0) => Err("a response (cid 0) must have an array `result`"),
        (1.0, _) if is_array("message") => Ok(()),
        (1.0, _) => Err("a notification (cid not 0) must have an array `message`"),
        _ => Err("`status` must be 0 or 1"),
    }
}

fn check_error(message: &Object) -> Result<(), &'static str> {
    let Some(Node::Object(error)) = message.get(b"error") else {
        return Err("an error (status 0) must have an object `error`");
    };
    if number(&error, "code").is_none() {
        return Err("`error.code` must be a number");
    }
    match error.get(b"message") {
        Some(Node::Text(_)) => Ok(()),
        _ => Err("`error.message` must be a string"),
    }
}

fn number(message: &Object, key: &str) -> Option<f64> {
    message.get(key.as_bytes())?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Ledger, from_json};

    fn node(text: &str) -> Node {
        from_json(text.as_bytes(), &Ledger::unlimited()).unwrap()
    }

    #[test]
    fn messages_of_clients_are_classified() {
        for (message, kind) in [
            (r#"{"lapps":1,"method":"m","cid":5}"#, Kind::Notification),
            (r#"{"lapps":1,"method":"m","cid":0}"#, Kind::Notification),
            (
                r#"{"lapps":1,"method":"m","cid":5,"params":[1]}"#,
                Kind::NotificationWithParams,
            ),
            (r#"{"lapps":1,"method":"m"}"#, Kind::Request),
            (r#"{"lapps":1.0,"method":"m"}"#, Kind::Request),
            // What is no array with something in it counts as no params.
            (r#"{"lapps":1,"method":"m","params":[]}"#, Kind::Request),
            (r#"{"lapps":1,"method":"m","params":null}"#, Kind::Request),
            (
                r#"{"lapps":1,"method":"m","params":{"a":1}}"#,
                Kind::Request,
            ),
            (
                r#"{"lapps":1,"method":"m","params":[{}],"more":1}"#,
                Kind::RequestWithParams,
            ),
        ] {
            assert_eq!(classify(&node(message)), Ok(kind), "{message}");
        }
    }

    #[test]
    fn other_messages_of_clients_are_refused() {
        for (message, why) in [
            ("[]", "map"),
            ("5", "map"),
            (r#"{"method":"m"}"#, "`lapps`"),
            (r#"{"lapps":2,"method":"m"}"#, "`lapps`"),
            (r#"{"lapps":"1","method":"m"}"#, "`lapps`"),
            (r#"{"lapps":1}"#, "`method`"),
            (r#"{"lapps":1,"method":1}"#, "`method`"),
            (r#"{"lapps":1,"method":""}"#, "empty"),
            (r#"{"lapps":1,"method":"_m"}"#, "`_`"),
            (r#"{"lapps":1,"method":"a.b"}"#, "`.`"),
            (r#"{"lapps":1,"method":"m","cid":"5"}"#, "`cid`"),
            (r#"{"lapps":1,"method":"m","cid":null}"#, "`cid`"),
        ] {
            let refused = classify(&node(message)).unwrap_err();
            assert!(refused.contains(why), "{message}: {refused}");
        }
    }

    #[test]
    fn messages_of_services_are_checked() {
        for message in [
            r#"{"cid":0,"status":1,"result":[]}"#,
            r#"{"cid":0.0,"status":1.0,"result":[1]}"#,
            r#"{"cid":0,"status":0,"error":{"code":-32600,"message":"no"}}"#,
            r#"{"cid":0,"status":0,"error":{"code":1,"message":"","data":null}}"#,
            r#"{"cid":5,"status":1,"message":[]}"#,
        ] {
            assert_eq!(check_outbound(&node(message)), Ok(()), "{message}");
        }
        for (message, why) in [
            ("[]", "object"),
            (r#"{"status":1,"result":[]}"#, "`cid`"),
            (r#"{"cid":"0","status":1,"result":[]}"#, "`cid`"),
            (r#"{"cid":0,"result":[]}"#, "`status`"),
            (r#"{"cid":0,"status":2,"result":[]}"#, "`status`"),
            (r#"{"cid":0,"status":true,"result":[]}"#, "`status`"),
            (r#"{"cid":0,"status":1}"#, "`result`"),
            (r#"{"cid":0,"status":1,"result":{}}"#, "`result`"),
            (r#"{"cid":0,"status":1,"message":[]}"#, "`result`"),
            (r#"{"cid":5,"status":1,"result":[]}"#, "`message`"),
            (r#"{"cid":5,"status":1,"message":"x"}"#, "`message`"),
            (r#"{"cid":5,"message":[]}"#, "`status`"),
            (
                r#"{"cid":3,"status":0,"error":{"code":1,"message":"x"}}"#,
                "cid 0",
            ),
            (r#"{"cid":0,"status":0}"#, "`error`"),
            (
                r#"{"cid":0,"status":0,"error":{"message":"x"}}"#,
                "`error.code`",
            ),
            (
                r#"{"cid":0,"status":0,"error":{"code":1}}"#,
                "`error.message`",
            ),
        ] {
            let refused = check_outbound(&node(message)).unwrap_err();
            assert!(refused.contains(why), "{message}: {refused}");
        }
    }
}
