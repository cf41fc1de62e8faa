// Changes to come of nodes' clocks: one of the network's file is drawn and removed, another is added by a form and dragged.
// Prints what was seen as one line of JSON.
// node clock-schedule.mjs ADDRESS NETWORK

import { findings, open, scheduleOf, show } from "./browser.mjs";

const [address, network] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = { findings: [] };

const { strip, mark, dragToMiddle, moved } = scheduleOf(page);
const dialog = page.getByRole("dialog");

await show("clock-schedule", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: network }).first().click();
  seen.drawn = await mark(1000).getAttribute("aria-label");
  await mark(1000).press("Delete");
  await strip.getByText("nothing is to come").waitFor();

  await strip.getByRole("button", { name: "Change", exact: true }).click();
  await dialog.getByLabel("at", { exact: true }).fill("2000s");
  await dialog.getByLabel("link or clock").selectOption("clock of a");
  await dialog.getByLabel("change", { exact: true }).selectOption("drift");
  await dialog.getByLabel("by", { exact: true }).fill("+100ppm");
  await dialog.getByText("drift: +100ppm").waitFor();
  seen.command = await dialog
    .locator('.command[aria-busy="false"] code')
    .innerText();
  seen.findings.push(...(await findings(page, "form")));
  if (process.env.SCREENSHOTS)
    await page.screenshot({
      path: `${process.env.SCREENSHOTS}/clock-schedule-form.png`,
    });
  await dialog.getByRole("button", { name: "Add change", exact: true }).click();
  await dialog.waitFor({ state: "detached" });
  await mark(2000).waitFor();

  // The strip's end is at 2560 s.
  await dragToMiddle(mark(2000));
  await mark(1280).press("ArrowRight");
  await moved();
  await mark(1281).waitFor();
  seen.findings.push(...(await findings(page, "strip")));
});
