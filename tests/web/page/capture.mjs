// Captures an interface: the table, the filter, the download. The caller sends frames meanwhile.
// node capture.mjs ADDRESS NETWORK END FILE

import { open, show } from "./browser.mjs";

const [address, network, end, file] = process.argv.slice(2);
const browser = await open();
const { page } = browser;
const seen = {};

await show("capture", browser, seen, async () => {
  await page.goto(address);
  await page.getByRole("link", { name: network }).first().click();
  await page.getByRole("link", { name: "List" }).click();
  await page.getByRole("button", { name: `Capture ${end}` }).click();
  const table = page.getByRole("region", { name: `Frames of ${end}` });
  await page.getByLabel("Filter: all words must occur").fill("icmp echo reply");
  // The caller may send from now on.
  console.error("ready");
  const reply = table.getByRole("row").filter({ hasText: "echo reply" });
  await reply.first().waitFor({ timeout: 60_000 });
  seen.row = (await reply.first().innerText())
    .split("\t")
    .map((cell) => cell.trim());
  seen.rows = await reply.count();
  await page.getByRole("button", { name: "Stop" }).click();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download pcapng" }).click(),
  ]);
  await download.saveAs(file);
  seen.name = download.suggestedFilename();
});
