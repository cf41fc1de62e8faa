// A browser for the tests of the page: Debian's Chromium, driven by playwright-core of web/node_modules.

import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(
  new URL("../../../web/package.json", import.meta.url),
);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * Opens a browser with an empty profile. `complaints` collects errors of the console and of the page, among them
 * violations of the content security policy.
 */
export async function open({
  width = 1360,
  height = 860,
  dark = false,
  calm = false,
  flags = [],
} = {}) {
  const profile = mkdtempSync(join(tmpdir(), "lorentz-page-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: [...FLAGS, ...flags],
    viewport: { width, height },
    colorScheme: dark ? "dark" : "light",
    reducedMotion: calm ? "reduce" : "no-preference",
  });
  const complaints = [];
  const listen = (page) => {
    page.on(
      "console",
      (message) =>
        message.type() === "error" &&
        complaints.push(`${message.text()} ${message.location().url}`),
    );
    page.on("pageerror", (error) => complaints.push(String(error)));
  };
  context.pages().forEach(listen);
  context.on("page", listen);
  const page = context.pages()[0] ?? (await context.newPage());
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { context, page, complaints, close };
}

/**
 * Prints, as one line of JSON, what `act` has put into `seen`, with the browser's complaints, and closes the browser. Of a failure there
 * is a picture.
 */
export async function show(name, browser, seen, act) {
  try {
    await act();
    seen.complaints = browser.complaints;
    console.log(JSON.stringify(seen));
  } catch (error) {
    await browser.page.screenshot({
      path: process.env.SCREENSHOT ?? `/tmp/lorentz-page-${name}.png`,
    });
    console.error(error, JSON.stringify(seen), browser.complaints);
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

/** The serious findings of axe on what `page` shows, a line each that begins with `shown`. */
export async function findings(page, shown) {
  // Playwright evaluates beside the page's policy, which allows no such script.
  await page.evaluate(axe);
  const result = await page.evaluate(() =>
    axe.run(document, { resultTypes: ["violations"] }),
  );
  const serious = result.violations.filter((found) =>
    ["serious", "critical"].includes(found.impact),
  );
  return serious.map((found) => {
    const places = found.nodes.map((node) => node.html).slice(0, 2);
    return `${shown}: ${found.id}: ${places.join(" ")}`;
  });
}

/** The strip of a network's changes to come, the mark of the change at so many seconds, and a drag of a mark to the middle. */
export function scheduleOf(page) {
  const strip = page.getByRole("region", { name: "Schedule, virtual time" });
  const mark = (at) => strip.getByRole("button", { name: `At ${at} s: ` });
  // In two moves, as a hand does.
  const dragToMiddle = async (held) => {
    const box = await strip.locator(".track").boundingBox();
    const middle = box.x + box.width / 2;
    const height = box.y + box.height / 2;
    await held.hover();
    await page.mouse.down();
    await page.mouse.move(middle + 40, height);
    await page.mouse.move(middle, height);
    await page.mouse.up();
  };
  // Until the server has moved all that is under way.
  const moved = () =>
    strip
      .locator('.mark[aria-busy="true"]')
      .first()
      .waitFor({ state: "detached" });
  return { strip, mark, dragToMiddle, moved };
}
