// A page in Chromium: echoes a text, a binary and a 1 MiB message, and closes with 1000.
//
// usage: page.js URL      (NODE_PATH names the folder that holds playwright-core)
const { chromium } = require("playwright-core");
const FLAGS = require("./chromium_flags");

// Runs inside the page.
async function echo(url) {
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  const next = (name) =>
    new Promise((resolve, reject) => {
      socket.addEventListener(name, resolve, { once: true });
      socket.addEventListener("error", () => reject(new Error("the socket failed")));
    });
  await next("open");
  const exchange = async (message) => {
    const reply = next("message");
    socket.send(message);
    return (await reply).data;
  };
  const text = "Grüße, 世界 🌙";
  if ((await exchange(text)) !== text) throw new Error("text came back changed");
  for (const size of [0, 256, 1024 * 1024]) {
    const bytes = Uint8Array.from({ length: size }, (_, index) => index % 251);
    const reply = new Uint8Array(await exchange(bytes));
    const same = reply.length === size && reply.every((byte, index) => byte === bytes[index]);
    if (!same) throw new Error(`${size} bytes came back changed`);
  }
  const closed = next("close");
  socket.close(1000, "done");
  const { code, wasClean } = await closed;
  if (code !== 1000 || !wasClean) throw new Error(`closed with ${code}, clean: ${wasClean}`);
}

async function main() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  try {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    const page = await context.newPage();
    await page.evaluate(echo, process.argv[2]);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
