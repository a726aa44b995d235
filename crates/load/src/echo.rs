//! A client that sends back what it is sent: the load client's session under a conformance suite.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonwire_net::{
    Completion, ConnectTarget, Driver, Flushed, Plaintext, ReceiveBuffer, Session, SessionEvent,
    SystemDriver, random_mask,
};
use moonwire_proto::{ClientKey, UpgradeRequest};

use crate::plan::Plan;
use crate::preflight;
use crate::run::LoadError;
use crate::scenario::Scenario;

/// What an echo client did until its connection ended.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EchoOutcome {
    /// Messages that were sent back.
    pub messages: u64,
    /// Whether the server accepted the upgrade.
    pub upgraded: bool,
    /// Whether compression was agreed on.
    pub deflate: bool,
    /// The code and reason of the server's close frame; `None` if the connection ended otherwise.
    pub close: Option<(Option<u16>, String)>,
    /// What ended it instead, in one sentence.
    pub error: Option<String>,
}

/// Opens one connection to the first target and echoes until it ends or `stop` is set.
pub fn echo(scenario: &Scenario, stop: &AtomicBool) -> Result<EchoOutcome, LoadError> {
    let addresses = Plan::resolve(scenario)?;
    let provision = preflight::check(scenario, &addresses).map_err(LoadError::Preflight)?;
    let plan = Plan::new(scenario, addresses, provision, stop)?;
    let mut driver = SystemDriver::new(scenario.driver).map_err(refused)?;
    let session = connect(&plan, &mut driver)?;
    let mut echo = Echo {
        session,
        plaintext: Plaintext::new(),
        outcome: EchoOutcome::default(),
    };
    while !echo.turn(&mut driver)? {
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(echo.outcome)
}

fn connect(plan: &Plan, driver: &mut SystemDriver) -> Result<Session, LoadError> {
    let target: ConnectTarget = plan.connect_target(0);
    let mut requests = plan.requests();
    let request: &mut UpgradeRequest = &mut requests[0];
    request.key = ClientKey::generate(random_mask);
    let socket = driver.connect(&target).map_err(refused)?;
    let session = Session::connect(
        socket,
        target.remote,
        plan.tls_of(0),
        request,
        &plan.limits,
        driver.now(),
    );
    let mut session = session.map_err(|error| LoadError::System(error.to_string()))?;
    if !plan.scenario.masked {
        session.omit_masks();
    }
    Ok(session)
}

/// The one connection.
struct Echo {
    session: Session,
    plaintext: Plaintext,
    outcome: EchoOutcome,
}

impl Echo {
    /// One turn of the loop; whether the connection is over.
    fn turn(&mut self, driver: &mut SystemDriver) -> Result<bool, LoadError> {
        let look = driver.now() + STOP_POLL;
        let until = self
            .session
            .deadline()
            .map_or(look, |deadline| deadline.min(look));
        driver.wait(Some(until)).map_err(refused)?;
        while let Some(completion) = driver.next() {
            self.complete(completion, driver);
        }
        let now = driver.now();
        let untaken_bytes = driver.untaken_bytes(self.session.socket());
        let event = self.session.on_deadline(untaken_bytes, now);
        note(&mut self.outcome, event);
        Ok(self.session.flush(driver) == Flushed::Finished)
    }

    fn complete(&mut self, completion: Completion, driver: &mut SystemDriver) {
        let now = driver.now();
        let session = &mut self.session;
        let event = match completion {
            Completion::Connected { result, .. } => session.on_connected(result, now),
            Completion::Received { buffer, .. } => return self.received(buffer, driver),
            Completion::EndOfStream { .. } => session.on_end_of_stream(now),
            Completion::Failed { error, .. } => session.on_failed(error),
            Completion::Blocked { bytes, .. } => {
                session.on_blocked(bytes);
                None
            }
            Completion::Sent { buffer, result, .. } => session.on_sent(buffer, result, now),
            Completion::Accepted { .. }
            | Completion::AcceptFailed { .. }
            | Completion::Detached { .. }
            | Completion::Woken => None,
        };
        note(&mut self.outcome, event);
    }

    fn received(&mut self, mut buffer: ReceiveBuffer, driver: &mut SystemDriver) {
        let now = driver.now();
        match self.session.open(&mut buffer, &mut self.plaintext) {
            Err(error) => self.outcome.error = Some(error.to_string()),
            Ok(mut input) => {
                let mut copy = Vec::new();
                while let Some(event) = self.session.poll(&mut input, now) {
                    let SessionEvent::Message { opcode, payload } = event else {
                        note(&mut self.outcome, Some(event));
                        continue;
                    };
                    copy.clear();
                    copy.extend_from_slice(payload);
                    self.outcome.messages += 1;
                    // It fails only once the connection is closing, which is told otherwise.
                    let _ = self.session.send(opcode, &copy);
                }
            }
        }
        driver.recycle(buffer);
    }
}

/// Takes note of everything but messages.
fn note(outcome: &mut EchoOutcome, event: Option<SessionEvent<'_>>) {
    match event {
        Some(SessionEvent::Upgraded { response, .. }) => {
            outcome.upgraded = true;
            outcome.deflate = response.deflate().is_some();
        }
        Some(SessionEvent::Refused { status, .. }) => {
            outcome.error = Some(format!(
                "the server answered the upgrade with status {status}"
            ));
        }
        Some(SessionEvent::Closed { code, reason, .. }) => {
            outcome.close = Some((code.map(|code| code.as_u16()), reason.to_owned()));
        }
        Some(SessionEvent::Failed(error)) => outcome.error = Some(error.to_string()),
        Some(
            SessionEvent::Ping(_)
            | SessionEvent::Pong { .. }
            | SessionEvent::Message { .. }
            | SessionEvent::More
            | SessionEvent::Request(_),
        )
        | None => {}
    }
}

fn refused(error: io::Error) -> LoadError {
    LoadError::System(format!("the system refused the connection: {error}"))
}

/// How soon an interrupt is noticed.
const STOP_POLL: Duration = Duration::from_millis(100);
