//! A server that sends what anybody publishes to all that have subscribed, with known faults.

use std::sync::Mutex;

use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Arc, Message, SinkExt, StreamExt, TcpStream, accept_async, thread};

/// What is wrong with it. All but the last two are about one subscriber that does not publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It gets nothing.
    Forget,
    /// It lacks one copy in ten.
    Drop,
    /// It gets one copy in ten twice.
    Double,
    /// It gets one copy in ten behind the next one.
    Swap,
    /// Who does not read is ended.
    CutSilent,
    /// Nobody is told that he has subscribed.
    Deaf,
}

/// The server, on a thread of its own; it lives as long as the process.
pub(crate) struct Broadcaster {
    pub(crate) url: String,
}

struct Room {
    fault: Fault,
    members: Mutex<Vec<Member>>,
}

struct Member {
    number: usize,
    queue: Sender<Message>,
    /// Ends its connection.
    cut: Arc<Notify>,
    /// Copies that were for it.
    copies: u64,
    held: Option<Message>,
    is_victim: bool,
}

impl Broadcaster {
    pub(crate) fn start(fault: Fault) -> Self {
        let (sender, address) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let socket = TcpSocket::new_v4().unwrap();
                // So that who does not read is known soon.
                socket.set_send_buffer_size(16 << 10).unwrap();
                socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
                let listener = socket.listen(64).unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                let room = Arc::new(Room {
                    fault,
                    members: Mutex::default(),
                });
                for number in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(Arc::clone(&room), number, stream));
                }
            });
        });
        let url = format!("ws://{}/", address.recv().unwrap());
        Self { url }
    }
}

async fn serve(room: Arc<Room>, number: usize, stream: TcpStream) {
    let Ok(socket) = accept_async(stream).await else {
        return;
    };
    let (mut sink, mut stream) = socket.split();
    let (queue, mut copies): (_, Receiver<Message>) = channel(QUEUE_MAX);
    let writer = tokio::spawn(async move {
        while let Some(copy) = copies.recv().await {
            if sink.send(copy).await.is_err() {
                return;
            }
        }
    });
    let cut = Arc::new(Notify::new());
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = cut.notified() => break,
        };
        let Some(Ok(message)) = message else {
            break;
        };
        if message.to_text().is_ok_and(|text| text == "subscribe") {
            room.join(number, queue.clone(), Arc::clone(&cut));
        } else if message.is_text() || message.is_binary() {
            room.publish(number, &message);
        }
    }
    room.leave(number);
    writer.abort();
}

impl Room {
    fn join(&self, number: usize, queue: Sender<Message>, cut: Arc<Notify>) {
        if self.fault != Fault::Deaf {
            queue.try_send(Message::text("subscribed")).unwrap();
        }
        self.members.lock().unwrap().push(Member {
            number,
            queue,
            cut,
            copies: 0,
            held: None,
            is_victim: false,
        });
    }

    fn leave(&self, number: usize) {
        let mut members = self.members.lock().unwrap();
        members.retain(|member| member.number != number);
    }

    fn publish(&self, publisher: usize, message: &Message) {
        let mut members = self.members.lock().unwrap();
        if !members.iter().any(|member| member.is_victim) {
            let mut others = members.iter_mut().filter(|it| it.number != publisher);
            others.next().unwrap().is_victim = true;
        }
        members.retain_mut(|member| {
            let copies = member.copies_of(self.fault, message);
            let mut copies = copies.into_iter();
            let has_room = copies.all(|it| member.queue.try_send(it).is_ok());
            if !has_room {
                member.cut.notify_one();
            }
            has_room
        });
    }
}

impl Member {
    fn copies_of(&mut self, fault: Fault, message: &Message) -> Vec<Message> {
        let is_tenth = self.copies % 10 == 5;
        self.copies += 1;
        let copy = message.clone();
        match fault {
            Fault::Forget if self.is_victim => vec![],
            Fault::Drop if self.is_victim && is_tenth => vec![],
            Fault::Double if self.is_victim && is_tenth => vec![copy.clone(), copy],
            Fault::Swap if self.is_victim && is_tenth => {
                self.held = Some(copy);
                vec![]
            }
            _ => [copy].into_iter().chain(self.held.take()).collect(),
        }
    }
}

/// Copies that wait for a subscriber.
const QUEUE_MAX: usize = 64;
