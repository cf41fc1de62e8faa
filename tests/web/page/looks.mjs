// Every view of fixtures (web/dev/mock.mjs), dark and light, wide and narrow: axe finds nothing serious, nothing overflows,
// the content security policy is kept; and the keyboard alone reaches a node.
// node looks.mjs ADDRESS

import { findings, open } from "./browser.mjs";

const [address] = process.argv.slice(2);
const VIEWS = {
  start: "#/",
  network: "#/network/campus?node=r2",
  link: "#/network/campus?link=r1%3Aeth1+-+r2%3Aeth0",
  list: "#/network/campus/list",
  history: "#/network/campus/history",
  many: "#/network/grid1000",
  experiment: "#/experiment/pair",
  container: "#/container/cache",
  editor: "#/edit/lab.yaml",
};
const seen = { findings: [], overflow: [], complaints: [] };

for (const [dark, width] of [
  [false, 1360],
  [true, 420],
]) {
  const browser = await open({ width, dark });
  const { page } = browser;
  try {
    for (const [name, view] of Object.entries(VIEWS)) {
      await page.goto(address + view);
      await page.locator("h1").first().waitFor({ state: "attached" });
      await page.waitForTimeout(500);
      seen.findings.push(...(await findings(page, `${name} ${width}`)));
      const wide = await page.evaluate(
        () => document.documentElement.scrollWidth - innerWidth,
      );
      if (wide > 0) seen.overflow.push(`${name} ${width}: ${wide} px`);
      if (process.env.SCREENSHOTS)
        await page.screenshot({
          path: `${process.env.SCREENSHOTS}/${name}-${width}.png`,
        });
    }
    seen.complaints.push(...browser.complaints);
  } finally {
    await browser.close();
  }
}

// The keyboard alone: from the start page to a node's panel, and its clock stands still for people who ask for calm.
const browser = await open({ calm: true });
try {
  const { page } = browser;
  await page.goto(`${address}#/`);
  const focused = () =>
    page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");
  const tabTo = async (text) => {
    for (let tries = 0; tries < 80; tries += 1) {
      await page.keyboard.press("Tab");
      if ((await focused()).startsWith(text)) return;
    }
    throw new Error(`Tab never reaches ${text}`);
  };
  await page.getByRole("link", { name: "campus" }).waitFor();
  await tabTo("campus");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "List" }).waitFor();
  await tabTo("List");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "client", exact: true }).waitFor();
  await tabTo("client");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "client" }).waitFor();
  seen.keyboard = page.url();
  seen.calm = await page
    .getByRole("timer", { name: "Virtual time of campus" })
    .innerText();
  // The address decides which node is shown, also when it changes in an open view.
  await page.goto(`${address}#/network/campus?node=r2`);
  await page.locator('.svelte-flow__node.selected[data-id="r2"]').waitFor();
  await page.goto(`${address}#/network/campus?node=client`);
  await page.locator('.svelte-flow__node.selected[data-id="client"]').waitFor();
  await page.waitForTimeout(500);
  seen.followed = page.url();
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
