// Changes to come of a network that runs: added by a form, dragged along the strip, moved and removed by keys.
// Prints what was seen as one line of JSON.
// node schedule.mjs ADDRESS NETWORK

import { findings, open, scheduleOf, show } from "./browser.mjs";

const [address, network] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = { findings: [], moves: [] };

const { strip, mark, dragToMiddle, moved } = scheduleOf(page);
const dialog = page.getByRole("dialog");
const shot = async (name) => {
  seen.findings.push(...(await findings(page, name)));
  if (process.env.SCREENSHOTS)
    await page.screenshot({
      path: `${process.env.SCREENSHOTS}/schedule-${name}.png`,
    });
};

// The server's line for what a form says comes late here: until then the line before is marked, and not to be copied.
// A move of a change waits for the keys that are pressed meanwhile.
let pressed;
const keys = new Promise((resolve) => (pressed = resolve));
await page.route("**/api/v1/do", async (route) => {
  const asked = route.request().postDataJSON();
  if (asked.dry) await new Promise((resolve) => setTimeout(resolve, 500));
  else if (asked.do === "schedule-move") {
    seen.moves.push(asked.at);
    await keys;
  }
  await route.continue();
});

await show("schedule", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: network }).first().click();
  await strip.getByText("nothing is to come").waitFor();

  await strip.getByRole("button", { name: "Change", exact: true }).click();
  await dialog.getByLabel("at", { exact: true }).fill("2000s");
  await dialog.getByText("state: down").waitFor();
  const line = dialog.locator(".command");
  await dialog.getByLabel("at", { exact: true }).fill("3000s");
  seen.stale = [
    await line.getAttribute("aria-busy"),
    await line.getByRole("button").isDisabled(),
  ];
  await dialog.getByLabel("at", { exact: true }).fill("2000s");
  seen.command = await dialog
    .locator('.command[aria-busy="false"] code')
    .innerText();
  await shot("form");
  await dialog.getByLabel("at", { exact: true }).fill("1ns");
  await dialog.getByRole("button", { name: "Add change", exact: true }).click();
  seen.refused = await dialog.getByRole("alert").innerText();
  await dialog.getByLabel("at", { exact: true }).fill("2000s");
  await dialog.getByLabel("change", { exact: true }).selectOption("set");
  await dialog.getByLabel("delay", { exact: true }).fill("80ms");
  await dialog.getByLabel("both ways").check();
  await dialog.getByRole("button", { name: "Add change", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  await mark(2000).waitFor();
  await strip.getByText("next in").waitFor();
  await shot("strip");

  // The strip's end is at 2560 s.
  await dragToMiddle(mark(2000));
  await mark(1280).press("ArrowRight");
  await mark(1281).press("ArrowRight");
  await mark(1282).waitFor();
  pressed();
  await moved();
  await mark(1282).press("Delete");
  await strip.getByText("nothing is to come").waitFor();
});
