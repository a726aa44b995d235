//! What anybody sends goes to all that have subscribed, through a channel as in axum's chat
//! example.

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use super::Failure;

/// All that have subscribed.
#[derive(Clone)]
pub struct Room(Sender<Message>);

impl Room {
    pub fn new() -> Self {
        Self(channel(WAITING_MAX).0)
    }

    pub fn accept(&self, upgrade: WebSocketUpgrade) -> Response {
        let room = self.clone();
        upgrade.on_upgrade(async move |socket| {
            // What one connection ends with is no matter of the others.
            let _ = room.serve(socket).await;
        })
    }

    async fn serve(&self, mut socket: WebSocket) -> Result<(), Failure> {
        let mut copies: Option<Receiver<Message>> = None;
        loop {
            tokio::select! {
                message = socket.next() => match message {
                    None => return Ok(()),
                    Some(Ok(Message::Text(text))) if text == "subscribe" => {
                        copies = Some(self.0.subscribe());
                        socket.send(Message::Text("subscribed".into())).await?;
                    }
                    Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                        // Nobody may have subscribed.
                        let _ = self.0.send(message);
                    }
                    Some(message) => drop(message?),
                },
                copy = next(&mut copies) => socket.send(copy?).await?,
            }
        }
    }
}

/// The next copy; never of one that has not subscribed. Who reads too slowly misses some.
async fn next(copies: &mut Option<Receiver<Message>>) -> Result<Message, Failure> {
    let Some(copies) = copies else {
        return std::future::pending().await;
    };
    loop {
        match copies.recv().await {
            Ok(copy) => return Ok(copy),
            Err(RecvError::Lagged(_)) => {}
            Err(error @ RecvError::Closed) => return Err(error.into()),
        }
    }
}

/// Messages that wait for the slowest.
const WAITING_MAX: usize = 4096;
