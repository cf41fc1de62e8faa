const hours = (ms) => ms / 3600e3;
const begin = Date.now();
const day = (ms) => (hours(ms - begin) / 24).toFixed(2);
let last = begin;
let gaps = 0;

setInterval(() => {
  const now = Date.now();
  if (hours(now - last) > 13) {
    console.log(`silent from day ${day(last)} to day ${day(now)}`);
    gaps += 1;
  }
  last = now;
  if (day(now) >= 80) {
    if (!gaps) console.log('80 days, a tick every 6 hours');
    process.exit();
  }
}, 6 * 3600e3);
