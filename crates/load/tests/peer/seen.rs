//! What a server saw of its clients.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio_tungstenite::tungstenite::Message;

/// Shared by a server and the test that asks it.
#[derive(Default)]
pub(super) struct Seen {
    /// How often each code and reason came in a closing frame.
    pub(super) farewells: Mutex<BTreeMap<(u16, String), u64>>,
    /// When each connection was accepted.
    pub(super) arrivals: Mutex<Vec<Instant>>,
    /// How often each message came, where they are kept, and whether as text.
    pub(super) messages: Mutex<BTreeMap<(bool, Vec<u8>), u64>>,
    /// Messages that had come when the late connection was answered.
    pub(super) early: AtomicU64,
    /// Connections that were accepted and are not answered yet, and most that ever were.
    under_way: AtomicU64,
    pub(super) under_way_max: AtomicU64,
}

impl Seen {
    pub(super) fn arrive(&self) {
        self.arrivals.lock().unwrap().push(Instant::now());
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.under_way_max.fetch_max(under_way, Ordering::SeqCst);
    }

    /// To be called before the answer, after which the client may make another one.
    pub(super) fn answer(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn note(&self, message: &Message) {
        if let Message::Close(Some(frame)) = message {
            let farewell = (frame.code.into(), frame.reason.to_string());
            *self.farewells.lock().unwrap().entry(farewell).or_default() += 1;
        }
    }

    pub(super) fn keep(&self, message: &Message) {
        let message = (message.is_text(), message.clone().into_data().to_vec());
        *self.messages.lock().unwrap().entry(message).or_default() += 1;
    }
}

/// Waits until as many are under way as may be, and for one more that must not come.
pub(super) async fn pass(gate: &Barrier) {
    gate.wait().await;
    tokio::time::sleep(INTRUDER_PATIENCE).await;
}

/// That nothing comes can only be waited for.
const INTRUDER_PATIENCE: Duration = Duration::from_millis(20);
