// Gives a node of a network in rounds a TDF of its own, as TimeKeeper's users did in CORE's window.
// node node-tdf.mjs ADDRESS NETWORK NODE TDF

import { open } from "./browser.mjs";

const [address, network, node, tdf] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = {};

try {
  await page.goto(address);
  await page.getByRole("link", { name: network }).first().click();
  await page.locator(`.svelte-flow__node[data-id="${node}"]`).click();
  const field = page.getByLabel("TDF of this node");
  seen.before = await field.getAttribute("placeholder");
  await field.fill(tdf);
  await page.getByRole("button", { name: "Set", exact: true }).click();
  seen.command = await page
    .getByRole("status")
    .getByText(`lorentz dilate ${network}.${node}`)
    .first()
    .innerText();
  await page
    .locator(`#node-tdf[placeholder="${tdf}"]`)
    .waitFor({ timeout: 30_000 });
  seen.complaints = browser.complaints;
  console.log(JSON.stringify(seen));
} catch (error) {
  await page.screenshot({
    path: process.env.SCREENSHOT ?? "/tmp/lorentz-page-node-tdf.png",
  });
  console.error(error, JSON.stringify(seen), browser.complaints);
  process.exitCode = 1;
} finally {
  await browser.close();
}
