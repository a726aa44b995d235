// The page of deploy/nginx in Chromium, as a user opens it: sends two messages, and prints what it
// shows as JSON. Fails if the page asks for anything that is not of its own origin.
//
// usage: nginx_page.js URL     (NODE_PATH names the folder with playwright-core)
const { chromium } = require("playwright-core");
const FLAGS = require("./chromium_flags");

async function shown(page, url) {
  const strangers = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(url)) strangers.push(request.url());
  });
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("state").textContent === "open");
  const replies = page.locator("#replies li");
  await page.click("#send");
  await replies.nth(0).waitFor();
  await page.fill("#text", "once more");
  await page.click("#send");
  await replies.nth(1).waitFor();
  const others = strangers.filter((it) => !it.startsWith("data:"));
  if (others.length > 0) throw new Error(`it asks elsewhere: ${others}`);
  return replies.allTextContents();
}

async function main() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  try {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    console.log(JSON.stringify(await shown(await context.newPage(), process.argv[2])));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
