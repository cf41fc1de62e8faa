// Two tabs of one browser: each shows what the other does.
// node tabs.mjs ADDRESS NETWORK

import { open } from "./browser.mjs";

const [address, network] = process.argv.slice(2);
const browser = await open();
const tabs = [browser.page, await browser.context.newPage()];

try {
  for (const tab of tabs) {
    await tab.goto(address);
    await tab.getByRole("link", { name: network }).first().click();
  }
  const [one, other] = tabs.map(
    (tab) => (name) => tab.getByRole("button", { name, exact: true }),
  );
  await one("Freeze").click();
  await other("Unfreeze").click();
  await one("Freeze").waitFor();
  await other("Freeze").waitFor();
  const clocks = await Promise.all(
    tabs.map((tab) =>
      tab
        .getByRole("timer", { name: `Virtual time of ${network}`, exact: true })
        .first()
        .innerText(),
    ),
  );
  console.log(JSON.stringify({ clocks, complaints: browser.complaints }));
} catch (error) {
  await tabs[1].screenshot({
    path: process.env.SCREENSHOT ?? "/tmp/lorentz-page-tabs.png",
  });
  console.error(error, browser.complaints);
  process.exitCode = 1;
} finally {
  await browser.close();
}
