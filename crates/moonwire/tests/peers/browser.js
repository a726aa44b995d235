// A browser that negotiates compression: sends many messages of mixed sizes, and looks at each as
// it comes back.
//
// usage: browser.js chromium|firefox-esr URL MESSAGES
const fs = require("fs");
const http = require("http");
const os = require("os");
const path = require("path");
const { spawn } = require("child_process");
const CHROMIUM_FLAGS = require("./chromium_flags");

// Longer than it takes on a busy machine.
const PATIENCE_MS = 50000;
// How long the browser's folder may take to be removed.
const REMOVAL_MS = 10000;

const FLAGS = {
  chromium: (folder) => ["--headless", ...CHROMIUM_FLAGS, `--user-data-dir=${folder}`],
  "firefox-esr": (folder) => ["--headless", "--no-remote", "--profile", folder],
};

// Runs inside the page.
async function exchange(url, messages) {
  const IN_FLIGHT = 50;
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  const failure = new Promise((_, reject) => {
    socket.onerror = () => reject(new Error("the socket failed"));
    socket.onclose = ({ code }) => reject(new Error(`closed with ${code}`));
  });
  await Promise.race([new Promise((resolve) => (socket.onopen = resolve)), failure]);
  if (!socket.extensions.includes("permessage-deflate")) {
    throw new Error(`extensions: "${socket.extensions}"`);
  }
  // Of sizes from nothing to 64 KiB, small ones more often; now and then 1 MiB.
  const size = (number) => {
    if (number % 1000 === 999) return 1 << 20;
    return ((number * 7919) % 257) * (number % 16 === 0 ? 256 : 8);
  };
  // Text, bytes that hold some pattern, and bytes that cannot become smaller.
  const message = (number) => {
    const length = size(number);
    if (number % 3 === 0) return `${number} Grüße 🌙 `.repeat(length / 16);
    const bytes = new Uint8Array(length);
    let state = number + 1;
    for (let index = 0; index < length; index += 1) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      bytes[index] = number % 3 === 1 ? (index + number) % 251 : state >>> 24;
    }
    return bytes;
  };
  const isSame = (sent, received) => {
    if (typeof sent === "string") return sent === received;
    const bytes = new Uint8Array(received);
    return bytes.length === sent.length && sent.every((byte, index) => byte === bytes[index]);
  };
  let [sent, received, bytes] = [0, 0, 0];
  const expected = [];
  const send = () => {
    if (sent === messages) return;
    const next = message(sent);
    expected.push(next);
    socket.send(next);
    sent += 1;
  };
  const done = new Promise((resolve, reject) => {
    socket.onmessage = ({ data }) => {
      const first = expected.shift();
      if (!isSame(first, data)) reject(new Error(`message ${received} came back changed`));
      received += 1;
      bytes += first.length;
      send();
      if (received === messages) resolve();
    };
  });
  for (let begun = 0; begun < IN_FLIGHT; begun += 1) send();
  await Promise.race([done, failure]);
  const { code, wasClean } = await new Promise((resolve) => {
    socket.onclose = resolve;
    socket.close(1000, "done");
  });
  if (code !== 1000 || !wasClean) throw new Error(`closed with ${code}, clean: ${wasClean}`);
  return `${received} of ${sent} messages, ${bytes} characters and bytes, ${socket.extensions}`;
}

const [browser, url, messages] = process.argv.slice(2);
const page = `<!doctype html><meta charset="utf-8"><script>
${exchange}
const say = (path, text) => fetch(path, { method: "POST", body: text });
exchange(${JSON.stringify(url)}, ${Number(messages)})
  .then((summary) => say("/done", summary), (error) => say("/failed", String(error)));
</script>`;

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "moonwire-browser-"));
let child;
let code = 1;

const server = http.createServer((request, response) => {
  if (request.method === "GET") {
    response.writeHead(request.url === "/" ? 200 : 404, { "Content-Type": "text/html" });
    return response.end(request.url === "/" ? page : "");
  }
  let text = "";
  request.on("data", (part) => (text += part));
  request.on("end", () => {
    response.end();
    code = request.url === "/done" ? 0 : 1;
    console.log(`${browser}: ${text}`);
    stop();
  });
});

// The browser's children write to its folder for a while after it has gone.
function stop() {
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

async function remove() {
  const patience = Date.now() + REMOVAL_MS;
  for (;;) {
    try {
      return fs.rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      if (error.code !== "ENOTEMPTY" || Date.now() > patience) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

server.listen(0, "127.0.0.1", () => {
  const address = `http://127.0.0.1:${server.address().port}/`;
  // Firefox keeps more than its profile at home.
  const env = { ...process.env, HOME: folder };
  // A group of its own, to be ended with all its children.
  const options = { env, stdio: "ignore", detached: true };
  child = spawn(browser, [...FLAGS[browser](folder), address], options);
  child.on("error", (error) => {
    console.error(String(error));
    process.exit(1);
  });
  child.on("exit", async () => {
    stop();
    await remove();
    process.exit(code);
  });
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, stop);
  setTimeout(() => {
    console.error(`${browser} has said nothing for ${PATIENCE_MS} ms`);
    stop();
  }, PATIENCE_MS);
});
