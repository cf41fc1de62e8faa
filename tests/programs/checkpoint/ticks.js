// A timer every 50 ms and one after 3 s.
const begun = performance.now();
const passed = () => (performance.now() - begun) / 1e3;
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
let n = 0;
const tick = () => {
  n += 1;
  say({ ev: "tick", thread: "a", n, late: passed() - n * 0.05 });
  setTimeout(tick, (n + 1) * 50 - passed() * 1e3);
};
setTimeout(tick, 50);
setTimeout(() => say({ ev: "empty", after: passed() }), 3000);
