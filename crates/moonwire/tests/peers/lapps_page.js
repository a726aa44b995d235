// The page of echo_lapps in Chromium, as a user opens it: it logs in, echoes and subscribes.
//
// usage: lapps_page.js URL PAGE TIMES     (NODE_PATH names the folder with cbor-js and
//                                         playwright-core)
//
// Waits until the page has heard so many notifications of the time, and prints what it counted as
// JSON.
const fs = require("fs");
const { pathToFileURL } = require("url");
const { chromium } = require("playwright-core");
const FLAGS = require("./chromium_flags");

const CDN = "https://cdn.jsdelivr.net/npm/cbor-js@0.1.0/cbor.js";
// Longer than a notification takes on a busy machine.
const PATIENCE_MS = 60000;

async function open(browser, url, file) {
  const page = await browser.newPage();
  // A page whose script has failed would wait for ever.
  page.on("pageerror", (error) => {
    console.error(String(error));
    process.exitCode = 1;
    page.close();
  });
  // The library is the installed one; that it is the page's own, its hash says.
  const body = fs.readFileSync(require.resolve("cbor-js"));
  const headers = { "Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript" };
  await page.route(/^https:/, (route) =>
    route.request().url() === CDN ? route.fulfill({ body, headers }) : route.abort(),
  );
  await page.goto(`${pathToFileURL(file)}?url=${encodeURIComponent(url)}`);
  return page;
}

// Runs inside the page.
function isOver({ times, heard }) {
  const text = (id) => document.getElementById(id).textContent;
  return text("state").startsWith("failed") || Number(text("times")) > heard ||
    Number(text("times")) >= times;
}

async function main() {
  const [url, file, times] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  try {
    const page = await open(browser, url, file);
    const text = (id) => page.textContent(`#${id}`);
    let [heard, first, last] = [0, 0, 0];
    while (heard < Number(times)) {
      const limits = { times: Number(times), heard };
      await page.waitForFunction(isOver, limits, { timeout: PATIENCE_MS });
      const state = await text("state");
      if (state !== "logged in") throw new Error(`the page says: ${state}`);
      heard = Number(await text("times"));
      last = performance.now();
      first = first || last;
    }
    const echoes = Number(await text("echoes"));
    const seconds = Math.round((last - first) / 100) / 10;
    console.log(JSON.stringify({ requests: echoes + 1, notifications: 2, heard, seconds }));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
