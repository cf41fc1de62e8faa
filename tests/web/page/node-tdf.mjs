// Gives a node of a network in rounds a TDF of its own, as TimeKeeper's users did in CORE's window.
// node node-tdf.mjs ADDRESS NETWORK NODE TDF

import { open, show } from "./browser.mjs";

const [address, network, node, tdf] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = {};

await show("node-tdf", browser, seen, async () => {
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
});
