// http-proxy in front of servers that take turns: one process, or a cluster of them on one port.
//
// ADDRESS=IP BACKENDS=HOST:PORT,... node proxy.js PORT [CERTIFICATE KEY]
'use strict';

const cluster = require('node:cluster');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const [port, certificate, key] = process.argv.slice(2);
const WORKERS = Number(process.env.WORKERS);
const BACKENDS = process.env.BACKENDS.split(',');
// Connections that the kernel keeps until they are accepted.
const BACKLOG = 4096;
// An idle WebSocket lives for an hour.
const IDLE_MS = 60 * 60 * 1000;

// As all contestants: TLS 1.3, keys by X25519, AES-GCM in the client's order, and no tickets that
// hold a session.
const TLS = {
  minVersion: 'TLSv1.3',
  ecdhCurve: 'X25519',
  ciphers: 'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384',
  secureOptions: require('node:crypto').constants.SSL_OP_NO_TICKET,
};

function serve(ready) {
  const { createProxyServer } = require(path.join(process.env.NODE_MODULES, 'http-proxy'));
  const proxy = createProxyServer({
    // More connections to the servers than Node's own agent would keep.
    agent: new http.Agent({ maxSockets: 65536 }),
    // The server sees who the client is.
    xfwd: true,
    proxyTimeout: IDLE_MS,
    timeout: IDLE_MS,
  });
  // A server that is away is told to the client; sockets of upgrades have no answer to give.
  proxy.on('error', (error, request, answer) => {
    if (answer.writeHead) answer.writeHead(502).end();
    else answer.destroy();
  });
  let turn = 0;
  const target = () => {
    turn += 1;
    return `http://${BACKENDS[turn % BACKENDS.length]}`;
  };
  const pass = (request, answer) => proxy.web(request, answer, { target: target() });
  const server = certificate
    ? require('node:https').createServer(
      { cert: fs.readFileSync(certificate), key: fs.readFileSync(key), ...TLS },
      pass,
    )
    : http.createServer(pass);
  // Upgrades are no requests to Node: they are passed on explicitly.
  server.on('upgrade', (request, socket, head) => {
    socket.on('error', () => {});
    proxy.ws(request, socket, head, { target: target() });
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
