//! The amplifying JSON service. The clock is read before the message is parsed, and the reply is
//! written once, as in the other servers of the lab.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::ws::Message;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Request<'a> {
    client_id: i64,
    msg_id: i64,
    msg: &'a str,
    created_at: i64,
}

#[derive(Serialize)]
struct Reply<'a> {
    client_id: i64,
    msg_id: i64,
    msg: &'a str,
    created_at: i64,
    client_ts: i64,
    server_latency: i64,
}

/// The reply to a message.
pub fn reply(message: &Message) -> Result<Message, crate::Failure> {
    let received = now_micros()?;
    let is_text = matches!(message, Message::Text(_));
    let text = message.to_text()?;
    let request: Request<'_> = serde_json::from_str(text)?;
    let reply = serde_json::to_string(&Reply {
        client_id: request.client_id,
        msg_id: request.msg_id,
        msg: request.msg,
        created_at: received,
        client_ts: request.created_at,
        server_latency: received - request.created_at,
    })?;
    Ok(match is_text {
        true => Message::Text(reply.into()),
        false => Message::Binary(reply.into()),
    })
}

/// Microseconds since 1970.
fn now_micros() -> Result<i64, crate::Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_micros())?)
}
