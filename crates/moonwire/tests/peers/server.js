// A server in JavaScript: echoes every message as it came, until standard input ends.
//
// usage: server.js [CERTIFICATE KEY]      (NODE_PATH names the folder that holds ws)
const fs = require("fs");
const http = require("http");
const https = require("https");
const { WebSocketServer } = require("ws");

const [certificate, key] = process.argv.slice(2);
const server = certificate
  ? https.createServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key) })
  : http.createServer();
const sockets = new WebSocketServer({ server, perMessageDeflate: false });
sockets.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("error", (error) => console.error(String(error)));
});
server.listen(0, "127.0.0.1", () => {
  const scheme = certificate ? "wss" : "ws";
  console.log(`listening on ${scheme}://127.0.0.1:${server.address().port}`);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
