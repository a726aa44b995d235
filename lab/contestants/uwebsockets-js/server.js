// An echo, the amplifying JSON service and a broadcast on uWebSockets.js: one thread, or one app
// per worker thread on the same port, which is how its examples use more than one processor on
// Linux.
//
// node server.js PORT THREADS [CERTIFICATE KEY]
'use strict';

const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const path = require('node:path');

const [port, threads, certificate, key] = isMainThread ? process.argv.slice(2) : workerData;
const REPLIES = Number(process.env.REPLIES);

// Several answers to each message. The clock is read before the message is parsed, and the reply is
// written once, as in the other servers of the lab.
function amplify(socket, message, isBinary) {
  const received = nowMicros();
  let request;
  try {
    request = JSON.parse(Buffer.from(message).toString());
  } catch {
    socket.end(1007, 'expected a JSON object');
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
  for (let reply = 0; reply < REPLIES; reply += 1) socket.send(text, isBinary, false);
}

// Microseconds since 1970. Two clocks, as Date has milliseconds only: the wall clock says where the
// finer one began.
function nowMicros() {
  return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

function serve(ready) {
  const uws = require(path.join(process.env.NODE_MODULES, 'uwebsockets'));
  const app = certificate
    ? uws.SSLApp({ cert_file_name: certificate, key_file_name: key })
    : uws.App();
  const settings = {
    // As moonwire by default: no compression, no end for idle connections, 16 MiB for a message
    // and for what waits to be written.
    compression: uws.DISABLED,
    idleTimeout: 0,
    maxPayloadLength: 16 * 1024 * 1024,
    maxBackpressure: 16 * 1024 * 1024,
  };
  app.ws('/echo', {
    ...settings,
    message: (socket, message, isBinary) => socket.send(message, isBinary, false),
  });
  app.ws('/amplify', { ...settings, message: amplify });
  app.ws('/broadcast', {
    ...settings,
    message: (socket, message, isBinary) => {
      if (Buffer.from(message).toString() === 'subscribe') {
        socket.subscribe('all');
        socket.send('subscribed', false, false);
      } else {
        app.publish('all', message, isBinary, false);
      }
    },
  });
  app.listen(process.env.ADDRESS, Number(port), (listening) => {
    if (!listening) {
      console.error(`port ${port} cannot be listened on`);
      process.exit(1);
    }
    ready();
  });
}

if (!isMainThread) {
  serve(() => parentPort.postMessage('ready'));
} else if (Number(threads) === 1) {
  serve(() => console.log(`listening on port ${port}, 1 thread`));
} else {
  let waiting = Number(threads);
  const count = () => {
    waiting -= 1;
    if (waiting === 0) console.log(`listening on port ${port}, ${threads} threads`);
  };
  for (let number = 0; number < Number(threads); number += 1) {
    new Worker(__filename, { workerData: [port, threads, certificate, key] }).on('message', count);
  }
}
