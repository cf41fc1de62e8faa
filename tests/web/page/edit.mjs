// Nodes and links come and go in a network that runs: by forms, by a drag from node to node, by clicks. A second tab follows.
// Prints what was seen as one line of JSON.
// node edit.mjs ADDRESS NETWORK

import { findings, open, show } from "./browser.mjs";

const [address, network] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const other = await browser.context.newPage();
const seen = { findings: [] };

const node = (tab, name) =>
  tab.locator(`.svelte-flow__node[data-id="${name}"]`);
const link = (tab, id) => tab.locator(`.svelte-flow__edge[data-id="${id}"]`);
const dialog = page.getByRole("dialog");
const press = (name) => dialog.getByRole("button", { name, exact: true });
/** Looks at what is shown: with axe, and by a picture where somebody asks for pictures. */
const shot = async (name) => {
  seen.findings.push(...(await findings(page, name)));
  if (process.env.SCREENSHOTS)
    await page.screenshot({
      path: `${process.env.SCREENSHOTS}/edit-${name}.png`,
    });
};

/** Where nodes are in the picture, whatever part of it is in sight. */
const places = () =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll(".svelte-flow__node")].map((one) => [
        one.dataset.id,
        one.style.transform,
      ]),
    ),
  );

/** Removes what is selected, and the question is answered with yes. */
async function remove(shown) {
  await page
    .getByLabel("Details")
    .getByRole("button", { name: "Remove", exact: true })
    .click();
  await dialog.getByText(shown).first().waitFor();
  await shot(`remove-${seen.removed ? "link" : "node"}`);
  seen.removed = true;
  await press("Remove").click();
  await dialog.waitFor({ state: "detached" });
}

// Forms propose what is free in the topology. It comes late here: nothing that was typed before may be lost.
await page.route("**/topology", async (route) => {
  await new Promise((resolve) => setTimeout(resolve, 1000));
  await route.continue();
});

await show("edit", browser, seen, async () => {
  for (const tab of [page, other]) {
    await tab.goto(address);
    await tab.getByRole("link", { name: network }).first().click();
    await node(tab, "a").waitFor();
  }
  // Playwright lets the tab in front alone draw at full speed.
  await page.bringToFront();

  // A node comes beside the switch, with a program and an address.
  await node(page, "s").click();
  await page.getByRole("heading", { name: "s", exact: true }).waitFor();
  const before = await places();
  await page.getByRole("button", { name: "Add node" }).click();
  await dialog.getByLabel("name", { exact: true }).fill("late");
  await dialog
    .getByLabel("command", { exact: true })
    .fill("sh -c 'echo \"it runs\"; sleep 1000'");
  seen.address = await dialog.getByLabel("Address of late:eth0").inputValue();
  await dialog.getByLabel("delay", { exact: true }).fill("soon");
  await dialog.getByText("# delay: ").waitFor();
  await press("Add node").click();
  seen.refused = await dialog.getByRole("alert").innerText();
  await shot("refused");
  await dialog.getByLabel("delay", { exact: true }).fill("5ms");
  await dialog.getByText("--delay 5ms").waitFor();
  seen.command = await dialog.locator(".command code").innerText();
  await shot("node");
  await press("Add node").click();
  await node(page, "late").waitFor();
  await node(other, "late").waitFor();
  await page.getByRole("heading", { name: "late" }).waitFor();
  const after = await places();
  seen.kept = Object.keys(before).every((name) => before[name] === after[name]);
  await page.getByRole("button", { name: "Output", exact: true }).click();
  await page.getByText("it runs").first().waitFor();

  // A refusal of the command is shown as it is.
  await page.getByRole("button", { name: "Add node" }).click();
  await dialog.getByLabel("name", { exact: true }).fill("late");
  await press("Add node").click();
  seen.twice = await dialog.getByRole("alert").innerText();
  await press("Cancel").click();

  // A link by a drag from node to node.
  await page.getByRole("button", { name: "Add link" }).click();
  await page.getByText("Drag from node to node").waitFor();
  await shot("pick");
  await node(page, "late").hover();
  await page.mouse.down();
  await node(page, "a").hover();
  await node(page, "a").hover();
  await page.mouse.up();
  await dialog.getByText("--ipv4").waitFor();
  await dialog.getByLabel("delay", { exact: true }).fill("20ms");
  await shot("link");
  await press("Add link").click();
  await link(page, "late:eth1 - a:eth1").waitFor({ state: "attached" });
  await link(other, "late:eth1 - a:eth1").waitFor({ state: "attached" });
  await shot("added");

  // A link by two clicks; it is left.
  await page.getByRole("button", { name: "Add link" }).click();
  await node(page, "b").click();
  await page.getByText("Link from b").waitFor();
  await node(page, "a").click();
  await dialog.getByText("lorentz link add b:eth1 a:eth2").waitFor();
  await press("Cancel").click();

  // The link that is selected goes, then the node with the other one.
  await remove("lorentz link rm late:eth1");
  await link(page, "late:eth1 - a:eth1").waitFor({ state: "detached" });
  await node(page, "late").click();
  await page.locator(".svelte-flow__node.selected").waitFor();
  await remove("late:eth0 – s:3");
  await node(page, "late").waitFor({ state: "detached" });
  await node(other, "late").waitFor({ state: "detached" });
});
