// An echo of uWebSockets.js: one thread, or one app per worker thread on the same port, which is
// how its examples use more than one processor on Linux.
//
// node server.js PORT THREADS [CERTIFICATE KEY]
'use strict';

const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const path = require('node:path');

const [port, threads, certificate, key] = isMainThread ? process.argv.slice(2) : workerData;

function serve(ready) {
  const uws = require(path.join(process.env.NODE_MODULES, 'uwebsockets'));
  const app = certificate
    ? uws.SSLApp({ cert_file_name: certificate, key_file_name: key })
    : uws.App();
  app.ws('/echo', {
    // As moonwire by default: no compression, no end for idle connections, 16 MiB for a message
    // and for what waits to be written.
    compression: uws.DISABLED,
    idleTimeout: 0,
    maxPayloadLength: 16 * 1024 * 1024,
    maxBackpressure: 16 * 1024 * 1024,
    message: (socket, message, isBinary) => socket.send(message, isBinary, false),
  });
  app.listen('127.0.0.1', Number(port), (listening) => {
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
