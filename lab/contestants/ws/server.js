// An echo, the amplifying JSON service and a broadcast on ws: one process, or a cluster of them on
// one port.
//
// node server.js PORT [CERTIFICATE KEY]
'use strict';

const cluster = require('node:cluster');
const fs = require('node:fs');
const path = require('node:path');

const [port, certificate, key] = process.argv.slice(2);
const WORKERS = Number(process.env.WORKERS);
const REPLIES = Number(process.env.REPLIES);
// Connections that the kernel keeps until they are accepted.
const BACKLOG = 4096;
// Who has subscribed.
const members = new Set();

// Several answers to each message. The clock is read before the message is parsed, and the reply is
// written once, as in the other servers of the lab.
function amplify(socket, message, isBinary) {
  const received = nowMicros();
  let request;
  try {
    request = JSON.parse(message);
  } catch {
    socket.close(1007, 'expected a JSON object');
    return;
  }
  const text = JSON.stringify({
    client_id: request.client_id,
    msg_id: request.msg_id,
    msg: request.msg,
    created_at: received,
    client_ts: request.created_at,
    server_latency: received - request.created_at,
  });
  for (let reply = 0; reply < REPLIES; reply += 1) socket.send(text, { binary: isBinary });
}

// What anybody sends goes to all members, framed for each of them: ws has nothing else.
function publish(socket, message, isBinary) {
  if (message.toString() === 'subscribe') {
    members.add(socket);
    socket.on('close', () => members.delete(socket));
    socket.send('subscribed');
    return;
  }
  for (const member of members) member.send(message, { binary: isBinary });
}

// Microseconds since 1970. Two clocks, as Date has milliseconds only: the wall clock says where the
// finer one began.
function nowMicros() {
  return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

function echo(socket, message, isBinary) {
  socket.send(message, { binary: isBinary });
}

const SERVICES = { '/amplify': amplify, '/broadcast': publish };

// As all contestants: TLS 1.3, keys by X25519, AES-GCM in the client's order, and no tickets that
// hold a session.
const TLS = {
  minVersion: 'TLSv1.3',
  ecdhCurve: 'X25519',
  ciphers: 'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384',
  secureOptions: require('node:crypto').constants.SSL_OP_NO_TICKET,
};

function serve(ready) {
  const ws = require(path.join(process.env.NODE_MODULES, 'ws'));
  const answer = (request, response) => response.writeHead(404).end();
  const server = certificate
    ? require('node:https').createServer(
      { cert: fs.readFileSync(certificate), key: fs.readFileSync(key), ...TLS },
      answer,
    )
    : require('node:http').createServer(answer);
  // As moonwire by default: no compression, 16 MiB for a message.
  const sockets = new ws.WebSocketServer({
    server,
    perMessageDeflate: false,
    maxPayload: 16 * 1024 * 1024,
  });
  sockets.on('connection', (socket, request) => {
    const service = SERVICES[request.url] || echo;
    socket.on('error', () => {});
    socket.on('message', (message, isBinary) => service(socket, message, isBinary));
  });
  server.listen({ host: process.env.ADDRESS, port: Number(port), backlog: BACKLOG }, ready);
}

if (WORKERS === 1) {
  serve(() => console.log(`listening on port ${port}, 1 worker`));
} else if (cluster.isPrimary) {
  let waiting = WORKERS;
  cluster.on('listening', () => {
    waiting -= 1;
    if (waiting === 0) console.log(`listening on port ${port}, ${WORKERS} workers`);
  });
  for (let number = 0; number < WORKERS; number += 1) cluster.fork();
} else {
  serve(() => {});
}
