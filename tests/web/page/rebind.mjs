// A name that a stranger owns leads to this server (DNS rebinding): the page and the interface are refused.
// node rebind.mjs ADDRESS NAME

import { open } from "./browser.mjs";

const [address, name] = process.argv.slice(2);
const own = new URL(address);
const other = `http://${name}:${own.port}`;
const browser = await open({
  flags: [`--host-resolver-rules=MAP ${name} ${own.hostname}`],
});
const { page } = browser;

try {
  const seen = { page: (await page.goto(`${other}/${own.hash}`)).status() };
  // The script that the stranger's page would run.
  const ask = (path, options) =>
    page.evaluate(
      async ([path, options]) => (await fetch(path, options)).status,
      [path, options],
    );
  const token = own.hash.slice(1);
  seen.session = await ask("/api/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  seen.state = await ask("/api/v1/state");
  seen.own = (await page.goto(address)).status();
  console.log(JSON.stringify(seen));
} catch (error) {
  console.error(error, browser.complaints);
  process.exitCode = 1;
} finally {
  await browser.close();
}
