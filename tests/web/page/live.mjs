// As a person would: open the printed address, find the network, watch its clock, freeze it, leap, use a terminal, change a
// link. Prints what was seen as one line of JSON.
// node live.mjs ADDRESS NETWORK NODE PEER_ADDRESS

import { open, show } from "./browser.mjs";

const [address, network, node, peer] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = {};

const clock = page
  .getByRole("timer", { name: `Virtual time of ${network}`, exact: true })
  .first();

/** Nanoseconds that the clock on the screen shows, and the browser's own clock at the same moment, in ms. */
const read = () =>
  clock.evaluate((element) => {
    const [hours, minutes, seconds] = element.textContent
      .split(":")
      .map(Number);
    return {
      shown: hours * 3600 + minutes * 60 + seconds,
      at: performance.now() / 1000,
    };
  });

/** Waits for a change of what a function reads, at most half a minute. */
async function until(what, holds) {
  for (let tries = 0; tries < 300; tries += 1) {
    const value = await what();
    if (holds(value)) return value;
    await page.waitForTimeout(100);
  }
  throw new Error(`never: ${what}`);
}

await show("live", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: network }).first().click();
  await clock.waitFor();
  seen.address = page.url();
  const [first, second] = [
    await read(),
    (await page.waitForTimeout(3000), await read()),
  ];
  seen.rate = (second.shown - first.shown) / (second.at - first.at);

  await page.getByRole("button", { name: "Freeze" }).click();
  // The message goes by itself after some seconds.
  seen.command = await page
    .getByRole("status")
    .getByText(`lorentz freeze ${network}`)
    .first()
    .innerText();
  await page.getByRole("button", { name: "Unfreeze" }).waitFor();
  const [frozen, later] = [
    await read(),
    (await page.waitForTimeout(1000), await read()),
  ];
  seen.frozen = later.shown - frozen.shown;
  await page.getByRole("button", { name: "Unfreeze" }).click();
  await page.getByRole("button", { name: "Freeze", exact: true }).waitFor();

  const before = await read();
  await page.getByRole("textbox", { name: "Duration" }).fill("1h");
  await page.getByRole("button", { name: "Leap", exact: true }).click();
  seen.leapt =
    (await until(read, (now) => now.shown > before.shown + 3000)).shown -
    before.shown;

  const graphed = page.locator(`.svelte-flow__node[data-id="${node}"]`);
  await graphed.dblclick();
  const rows = page.locator(".xterm-rows");
  await rows.waitFor();
  const text = () => rows.innerText();
  const ping = async () => {
    const had = (await text()).split("time=").length;
    await page.locator(".xterm-helper-textarea").focus();
    await page.keyboard.type(`ping -c 1 ${peer}\n`);
    const screen = await until(
      text,
      (now) =>
        now.split("time=").length > had &&
        /rtt/.test(now.split("time=").at(-1)),
    );
    return Number(/^[\d.]+/.exec(screen.split("time=").at(-1))[0]);
  };
  await until(text, (now) => /[#$]/.test(now));
  seen.ping = await ping();

  await page.getByRole("link", { name: "List" }).click();
  await page
    .getByRole("button", { name: new RegExp(`^${node}:.* – `) })
    .click();
  const delay = page.getByRole("textbox", { name: "Delay, as text" });
  await delay.fill("80ms");
  await delay.press("Enter");
  await page.getByRole("status").getByText("link set").first().waitFor();
  seen.slower = await ping();
});
