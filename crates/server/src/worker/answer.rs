//! Answers to requests: a service, another worker that has it, or a plain response.

use moonwire_lua::Effects;
use moonwire_net::{Driver, Session, SocketId, Transport};
use moonwire_proto::{Acceptance, Request, refusal};
use tracing::{debug, warn};

use super::connections::Stage;
use super::scripts::{Place, Scripts};
use super::{Desk, Phase, Worker};
use crate::event::{Handover, Letter};
use crate::mailbox::Mailbox;
use crate::metrics;
use crate::router::Route;
use crate::shared::Shared;
use crate::stats::HandshakeFailure;

/// What of a request decides about its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    route: Route,
    is_upgrade: bool,
    /// Whether it comes with cookies from a page that may not use them.
    is_cross_site: bool,
}

impl Asked {
    pub(super) fn new(request: &Request, shared: &Shared) -> Self {
        let route = shared.router.route(request.path());
        let is_cross_site = match route {
            Route::Service(service) => {
                let allowed = &shared.services[usize::from(service)].allowed_origins;
                allowed.refuses(request, shared.tls.is_some())
            }
            Route::Health | Route::Metrics | Route::NotFound => false,
        };
        Self {
            route,
            is_upgrade: request.is_upgrade(),
            is_cross_site,
        }
    }
}

impl Desk {
    /// Answers the request of this connection, now or on another worker.
    pub(super) fn answer(
        &mut self,
        socket: SocketId,
        asked: Asked,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
    ) {
        match asked.route {
            route if self.is_barred(socket, route) => {
                let reason = HandshakeFailure::Acl;
                self.reply(socket, 403, &[TEXT], BARRED, Some(reason));
            }
            Route::Health => self.reply(socket, 200, &[TEXT], b"ok\n", None),
            Route::Metrics => {
                let mailboxes: Vec<_> = self.shared.mailboxes.iter().map(Mailbox::load).collect();
                let sources = self.shared.sources.len();
                let page = metrics::prometheus(&self.shared.stats, &mailboxes, sources);
                let kind = ("Content-Type", metrics::PROMETHEUS_TYPE);
                self.reply(socket, 200, &[kind], page.as_bytes(), None);
            }
            Route::NotFound => {
                let reason = HandshakeFailure::NotFound;
                self.reply(socket, 404, &[TEXT], b"no service here\n", Some(reason));
            }
            Route::Service(service) if self.shared.is_broken(service.into()) => {
                let reason = HandshakeFailure::Broken;
                self.reply(
                    socket,
                    503,
                    &[TEXT],
                    b"this service has not started\n",
                    Some(reason),
                );
            }
            Route::Service(_) if !asked.is_upgrade => {
                let body = b"this is a WebSocket service\n";
                let reason = HandshakeFailure::UpgradeRequired;
                self.reply(socket, 426, &[TEXT], body, Some(reason));
            }
            Route::Service(_) if asked.is_cross_site => {
                let reason = HandshakeFailure::CrossSite;
                self.reply(socket, 403, &[TEXT], CROSS_SITE, Some(reason));
            }
            Route::Service(service) => self.place(socket, service, scripts, effects, driver),
        }
    }

    /// Whether an access control list keeps the address of this connection out.
    fn is_barred(&mut self, socket: SocketId, route: Route) -> bool {
        let Some(connection) = self.connections.of_socket(socket) else {
            return false;
        };
        let peer = connection.session.peer().ip();
        let is_admitted = self.shared.acl.admits(peer)
            && match route {
                Route::Service(service) => {
                    self.shared.services[usize::from(service)].acl.admits(peer)
                }
                Route::Health | Route::Metrics | Route::NotFound => true,
            };
        !is_admitted
    }

    /// Accepts the connection for the instance at `place`, unless there are too many already or the
    /// service refuses it.
    pub(super) fn admit(
        &mut self,
        socket: SocketId,
        place: Place,
        scripts: &mut Scripts,
        effects: &mut Effects,
        driver: &mut impl Driver,
    ) {
        let handler = self.connections.name(self.worker, socket);
        let is_full = self.connections.open() >= self.shared.limits.connections_per_worker_max;
        let (Some(handler), false) = (handler, is_full) else {
            return self.refuse_busy(socket);
        };
        let Some(opening) = self.ask_service(socket, place, scripts, effects, driver) else {
            return;
        };
        let shared = &self.shared;
        let service = &shared.services[usize::from(place.service)];
        let limits = &shared.service_limits[usize::from(place.service)];
        let Some(connection) = self.connections.of_socket(socket) else {
            return;
        };
        connection.session.set_limits(limits);
        let is_subprotocol_forced = service.is_subprotocol_forced;
        let offered = |name: &&str| {
            let request = connection.session.request();
            let mut offers = request.into_iter().flat_map(Request::subprotocols);
            is_subprotocol_forced || offers.any(|offer| offer == *name)
        };
        let configured = service.subprotocol.as_deref().filter(offered);
        let subprotocol = opening.subprotocol.as_deref().or(configured);
        let headers: Vec<_> = service
            .extra_headers
            .iter()
            .chain(&opening.headers)
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let acceptance = Acceptance {
            subprotocol,
            is_subprotocol_forced,
            deflate: service.deflate.as_ref(),
            extra_headers: &headers,
        };
        if let Err(error) = connection.session.accept(&acceptance) {
            warn!(
                service = service.name,
                "a request cannot be accepted: {error}"
            );
            return self.reply(
                socket,
                500,
                &[TEXT],
                b"",
                Some(HandshakeFailure::BadRequest),
            );
        }
        let open = Stage::Open {
            place,
            handler,
            is_closing: false,
        };
        self.connections.change(socket, open);
        let stats = &self.stats.services[usize::from(place.service)];
        stats.connected.add(1);
        stats.connections.add(1);
    }

    pub(super) fn refuse_busy(&mut self, socket: SocketId) {
        let reason = Some(HandshakeFailure::Busy);
        let status = self.shared.limits.busy_status;
        self.reply(socket, status, &RETRY, b"too many connections\n", reason);
    }

    fn refuse_stopping(&mut self, socket: SocketId) {
        let reason = Some(HandshakeFailure::Stopping);
        self.reply(socket, 503, &RETRY, b"the server is going away\n", reason);
    }

    /// A plain response, after which the connection is over.
    pub(super) fn reply(
        &mut self,
        socket: SocketId,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
        failure: Option<HandshakeFailure>,
    ) {
        match failure {
            Some(reason) => self.stats.handshake_failed(reason),
            None => self.stats.requests.add(1),
        }
        let mut response = refusal(status, headers, body).expect("our own header fields are valid");
        if let Some(connection) = self.connections.of_socket(socket)
            && connection.session.request().is_some_and(Request::is_head)
        {
            response.truncate(response.len() - body.len());
        }
        self.end_handshake(socket, &response);
    }

    /// The last that is sent there.
    pub(super) fn end_handshake(&mut self, socket: SocketId, response: &[u8]) {
        if let Some(connection) = self.connections.of_socket(socket) {
            connection.session.refuse(response);
            self.connections.change(socket, Stage::Over);
        }
    }
}

impl<D: Driver> Worker<D> {
    /// The driver has let go of a connection that leaves: it goes where its place is reserved.
    pub(super) fn detached(&mut self, socket: SocketId, transport: Transport, unsent: Vec<u8>) {
        let Some(connection) = self.desk.forget(socket) else {
            return;
        };
        let peer = connection.session.peer();
        let Stage::Leaving { worker, service } = connection.stage else {
            // It ended while the driver let go of it, and its place was given back.
            return self.release_source(peer);
        };
        let bytes = connection.session.memory_bytes().total() + unsent.capacity();
        let session = connection.session.detach(transport, unsent);
        let session = match self.desk.shared.portals.get(worker) {
            None => session,
            Some(portal) => match session.pass(portal) {
                Ok(session) => session,
                // So many are on their way there that no more fit.
                Err(error) => {
                    debug!("a connection cannot be handed over: {error}");
                    self.desk.shared.mailboxes[worker].release();
                    self.release_source(peer);
                    return self.desk.stats.handshake_failed(HandshakeFailure::Busy);
                }
            },
        };
        let letter = Letter::Handover(Box::new(Handover { session, service }));
        match self.desk.shared.mailboxes[worker].post(letter, bytes) {
            Ok(()) => self.desk.stats.handed_over.add(1),
            // The other worker has ended, so the server is about to; the letter closes the socket.
            Err(_) => {
                self.release_source(peer);
                self.desk.stats.handshake_failed(HandshakeFailure::Stopping);
            }
        }
    }

    /// A connection from another worker, whose request waits for an answer.
    pub(super) fn taken_over(&mut self, handover: Handover) {
        let Handover { session, service } = handover;
        self.desk.stats.taken_over.add(1);
        let peer = session.session().peer();
        if self.desk.is_full() {
            self.release_source(peer);
            return self.desk.stats.handshake_failed(HandshakeFailure::Busy);
        }
        let arrived = match &mut self.arrivals {
            None => Ok(session),
            Some(arrivals) => session.arrive(arrivals),
        };
        let attached = arrived.and_then(|session| Session::attach(session, &mut self.driver));
        let session = match attached {
            Ok(session) => session,
            Err(error) => {
                warn!("a connection cannot be taken over: {error}");
                self.release_source(peer);
                return self.desk.stats.handshake_failed(HandshakeFailure::Busy);
            }
        };
        let socket = session.socket();
        let is_late = session.deadline().is_some_and(|by| by <= self.driver.now());
        self.desk.insert(socket, session, Stage::Handshake);
        match self.scripts.choose(service) {
            // It waited for this worker for longer than a handshake may take.
            _ if is_late => self.desk.refuse_busy(socket),
            Some(place) if self.phase == Phase::Serving => {
                let Self {
                    desk,
                    scripts,
                    effects,
                    driver,
                    ..
                } = self;
                desk.admit(socket, place, scripts, effects, driver);
            }
            Some(_) | None => self.desk.refuse_stopping(socket),
        }
        // What the client sent behind its request came along.
        self.unread(socket);
    }
}

const BARRED: &[u8] = b"this address may not connect here\n";

const CROSS_SITE: &[u8] = b"a page of this origin may not connect with cookies: \
    it is not this host, and the server's allowed_origins does not name it\n";

const TEXT: (&str, &str) = ("Content-Type", "text/plain; charset=utf-8");

/// Another server, or this one a little later, may have room.
const RETRY: [(&str, &str); 2] = [("Retry-After", "1"), TEXT];
