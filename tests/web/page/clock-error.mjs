// Makes the clock of a container err by the form of its page, and ends the error again. Prints what was seen as one line of JSON.
// node clock-error.mjs ADDRESS CONTAINER

import { findings, open, show } from "./browser.mjs";

const [address, container] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = { commands: [] };

const form = page.getByRole("group", {
  name: `Errors of the clock of ${container}`,
});
const fault = form.getByLabel("Fault of the clock");
const fact = (name, value) =>
  form.locator(`dt:has-text("${name}") + dd`).getByText(value, { exact: true });
const command = async (text) => {
  const line = form.locator('.command[aria-busy="false"] code', {
    hasText: text,
  });
  seen.commands.push(await line.innerText());
};

await show("clock-error", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: container }).first().click();
  await form.getByLabel("By", { exact: true }).fill("+90s");
  await command("bump");
  await form.getByRole("button", { name: "Make it err" }).click();
  await fact("From the truth", "+90 s").waitFor();
  await fact("Too fast by", "0 ppm").waitFor();

  await fault.selectOption("drift");
  await form.getByLabel("By", { exact: true }).fill("+200ppm");
  await command("drift");
  await form.getByRole("button", { name: "Make it err" }).click();
  await fact("Too fast by", "+200 ppm").waitFor();
  seen.findings = await findings(page, "errs");
  if (process.env.SCREENSHOTS)
    await page.screenshot({
      path: `${process.env.SCREENSHOTS}/clock-error.png`,
    });

  await fault.selectOption("suspend");
  await form.getByLabel("For", { exact: true }).fill("soon");
  await form.getByRole("button", { name: "Make it err" }).click();
  seen.refused = await page
    .getByRole("status")
    .getByText("for: ")
    .first()
    .innerText();

  await fault.selectOption("reset");
  await command("reset");
  await form.getByRole("button", { name: "Reset" }).click();
  await fact("Too fast by", "0 ppm").waitFor();
});
