//! The agent: it listens, lets one lab in at a time, and ends with all that it has started.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::session::{Means, Session};
use super::token::Token;
use super::wire::{Answer, HELLO_BYTES_MAX, Request, VERSION, Wire, WireError};
use super::{AgentError, SILENCE_MAX};
use crate::contestant::Roster;

/// What an agent is.
#[derive(Debug)]
pub struct AgentSpec {
    /// Where labs find it.
    pub listen: SocketAddr,
    /// What they have to know; needed on anything but the loopback.
    pub token: Option<Token>,
    /// Those that it starts, and nobody else.
    pub roster: Roster,
    /// The moonwire that is a contestant: this program, normally.
    pub program: PathBuf,
    /// What `cargo xtask peers` has installed.
    pub peers: PathBuf,
}

/// What happens at an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// Labs may come.
    Listening(SocketAddr),
    /// A lab has it.
    Taken(SocketAddr),
    /// That lab is gone, and so is all that was started for it.
    Left(SocketAddr, String),
    /// Somebody was not let in, for this reason.
    Refused(SocketAddr, String),
}

/// Serves labs until `stop`.
pub fn agent(
    spec: AgentSpec,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&AgentEvent),
) -> Result<(), AgentError> {
    if !spec.listen.ip().is_loopback() && spec.token.is_none() {
        return Err(AgentError::Open(spec.listen));
    }
    let cannot = |error| AgentError::Listen(spec.listen, error);
    let listener = TcpListener::bind(spec.listen).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    observer(&AgentEvent::Listening(
        listener.local_addr().map_err(cannot)?,
    ));
    // Removed also where a session takes too long to end.
    let folder = tempfile::tempdir().map_err(AgentError::Folder)?;
    let (news, events) = mpsc::channel();
    let desk = Arc::new(Desk {
        means: Means {
            roster: spec.roster,
            program: spec.program,
            peers: spec.peers,
            folder: folder.path().to_owned(),
        },
        token: spec.token,
        lab: Mutex::new(None),
        guests: AtomicUsize::new(0),
        news,
    });
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok((stream, peer)) = listener.accept() {
            threads.extend(receive(&desk, stream, peer));
        } else {
            std::thread::sleep(ACCEPT_PERIOD);
        }
        threads.retain(|thread| !thread.is_finished());
        events.try_iter().for_each(|event| observer(&event));
    }
    if let Some((_, stream)) = &*desk.lab() {
        // Its session sees that, and ends what it has started.
        let _ = stream.shutdown(Shutdown::Both);
    }
    let deadline = Instant::now() + END_WAIT;
    while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
        std::thread::sleep(ACCEPT_PERIOD);
    }
    events.try_iter().for_each(|event| observer(&event));
    Ok(())
}

/// What all connections share.
struct Desk {
    means: Means,
    token: Option<Token>,
    /// The lab that has it.
    lab: Mutex<Option<(SocketAddr, TcpStream)>>,
    /// Connections, that of the lab included.
    guests: AtomicUsize,
    news: Sender<AgentEvent>,
}

impl Desk {
    fn lab(&self) -> std::sync::MutexGuard<'_, Option<(SocketAddr, TcpStream)>> {
        self.lab.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a connection on a thread of its own. Beyond the bound it is closed without a word.
fn receive(desk: &Arc<Desk>, stream: TcpStream, peer: SocketAddr) -> Option<JoinHandle<()>> {
    let guest = Guest::at(desk)?;
    let serve = move || {
        let desk = &guest.0;
        let event = match attend(desk, stream, peer) {
            Ok(end) => AgentEvent::Left(peer, end.to_string()),
            Err(why) => AgentEvent::Refused(peer, why),
        };
        let _ = desk.news.send(event);
    };
    let thread = std::thread::Builder::new().name("lab".into());
    thread.spawn(serve).ok()
}

/// One of the connections; dropping it, also where its thread panics or is not to be had, makes
/// room for another one.
struct Guest(Arc<Desk>);

impl Guest {
    fn at(desk: &Arc<Desk>) -> Option<Self> {
        let guest = Self(Arc::clone(desk));
        let before = desk.guests.fetch_add(1, Ordering::Relaxed);
        (before < GUESTS_MAX).then_some(guest)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets a lab in and serves it to its end, or tells why it is not let in.
fn attend(desk: &Desk, stream: TcpStream, peer: SocketAddr) -> Result<WireError, String> {
    let unusable = |error: std::io::Error| error.to_string();
    stream.set_nonblocking(false).map_err(unusable)?;
    let own = stream.local_addr().map_err(unusable)?.ip().to_canonical();
    let handle = stream.try_clone().map_err(unusable)?;
    let mut wire = Wire::new(stream).map_err(unusable)?;
    let hello = wire.receive::<Request>(HELLO_PATIENCE, HELLO_BYTES_MAX);
    let hello = hello
        .map(|(request, _)| request)
        .map_err(|error| error.to_string());
    let admitted = hello.and_then(|request| {
        check(desk, &request)?;
        let place = Place::take(desk, peer, handle)?;
        let session = Session::new(&desk.means, own)?;
        Ok((session, place))
    });
    let (session, _place) = match admitted {
        Ok(admitted) => admitted,
        Err(sentence) => {
            let _ = wire.send(&Answer::Refused {
                sentence: sentence.clone(),
            });
            return Err(sentence);
        }
    };
    let _ = desk.news.send(AgentEvent::Taken(peer));
    if let Err(error) = wire.send(&Answer::Welcome { address: own }) {
        return Ok(error);
    }
    // Only when all has ended is there room for the next one.
    Ok(session.run(&mut wire, SILENCE_MAX))
}

fn check(desk: &Desk, request: &Request) -> Result<(), String> {
    let Request::Hello { version, token } = request else {
        return Err("a lab says hello first".to_owned());
    };
    if *version != VERSION {
        return Err(format!(
            "it speaks version {VERSION} of the agents' language, and the lab version {version}: \
             run the same moonwire on both hosts"
        ));
    }
    match (&desk.token, token) {
        (None, _) => Ok(()),
        (Some(own), Some(shown)) if own.is(shown) => Ok(()),
        (Some(_), Some(_)) => Err("the token is another one than it has".to_owned()),
        (Some(_), None) => Err("it asks for its token: give --agent-token-file FILE or \
             MOONWIRE_AGENT_TOKEN"
            .to_owned()),
    }
}

/// That of the one lab; dropping it makes room for another one.
struct Place<'a>(&'a Desk);

impl<'a> Place<'a> {
    fn take(desk: &'a Desk, peer: SocketAddr, stream: TcpStream) -> Result<Self, String> {
        let mut lab = desk.lab();
        if let Some((other, _)) = &*lab {
            return Err(format!(
                "it works for the lab at {other}, and for one at a time: try again when that has \
                 ended"
            ));
        }
        *lab = Some((peer, stream));
        Ok(Self(desk))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.lab() = None;
    }
}

/// Those that have not shown their token, and the lab.
const GUESTS_MAX: usize = 8;
/// For the first line, whole.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether somebody comes, or the agent is to end.
const ACCEPT_PERIOD: Duration = Duration::from_millis(20);
/// How long a session may take to end. What is left then dies with this process.
const END_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_makes_room_however_it_ends() {
        let desk = Arc::new(Desk {
            means: Means {
                roster: Roster::load(None).unwrap(),
                program: PathBuf::from("/none"),
                peers: PathBuf::from("/none"),
                folder: std::env::temp_dir(),
            },
            token: None,
            lab: Mutex::new(None),
            guests: AtomicUsize::new(0),
            news: mpsc::channel().0,
        });
        let guests: Vec<Guest> = (0..GUESTS_MAX).map(|_| Guest::at(&desk).unwrap()).collect();
        assert!(Guest::at(&desk).is_none());
        let panicked = std::thread::spawn(move || {
            assert!(guests.is_empty(), "this thread is to panic");
        });
        assert!(panicked.join().is_err());
        assert_eq!(desk.guests.load(Ordering::Relaxed), 0);
    }
}
