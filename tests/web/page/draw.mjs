// Draws two nodes and a link from nothing, saves the file, brings the network up, and takes it down again.
// node draw.mjs ADDRESS NETWORK

import { open, show } from "./browser.mjs";

const [address, network] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = {};

await show("draw", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: "New network" }).click();
  const name = page.getByLabel("Name", { exact: true });
  await name.fill(network);
  await name.press("Enter");
  await page.getByLabel("TDF", { exact: true }).fill("10");
  await page.getByLabel("TDF", { exact: true }).press("Enter");
  for (const node of ["client", "server"]) {
    await page
      .getByRole("group", { name: "Add a node" })
      .getByRole("button", { name: "process" })
      .click();
    const field = page.getByLabel("Name of the node");
    await field.fill(node);
    await field.press("Enter");
    await page.locator(`.svelte-flow__node[data-id="${node}"]`).waitFor();
  }
  await page.getByLabel("Link to").selectOption("client");
  await page.getByRole("button", { name: "Add link" }).click();
  await page.getByLabel("delay", { exact: true }).fill("5ms");
  await page.getByLabel("delay", { exact: true }).press("Enter");

  // A wrong value is told at its line, by Lorentz's own check.
  await page.getByLabel("rate", { exact: true }).fill("fast");
  await page.getByLabel("rate", { exact: true }).press("Enter");
  seen.error = await page
    .getByRole("button", { name: /fast/ })
    .first()
    .innerText();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByText("Lorentz accepts this file").waitFor();

  await page.getByLabel("File", { exact: true }).fill(`${network}.yaml`);
  await page.getByLabel("File", { exact: true }).press("Enter");
  seen.yaml = await page.getByLabel("The topology file").inputValue();
  await page.getByRole("button", { name: "Up", exact: true }).click();
  await page
    .getByRole("timer", { name: `Virtual time of ${network}`, exact: true })
    .waitFor({ timeout: 60_000 });
  seen.address = page.url();
  await page.locator('.svelte-flow__node[data-id="client"]').waitFor();
  await page.getByRole("button", { name: "Down" }).click();
  await page
    .getByText("This network does not run")
    .waitFor({ timeout: 60_000 });
});
