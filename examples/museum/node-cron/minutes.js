const cron = require('node-cron');

const begin = Date.now();
const minutes = () => Math.round((Date.now() - begin) / 60e3);
let runs = 0;

cron.schedule('* * * * *', () => (runs += 1));
setInterval(() => {
  if (minutes() < 145) return;
  console.log(`${minutes()} minutes, ${runs} runs`);
  process.exit();
}, 60e3);
