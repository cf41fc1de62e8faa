const Snowflake = require('snowflake-id').default;

const snowflake = new Snowflake({ mid: 1 });
const seen = new Set();
let count = 0;
let twice = 0;
const end = process.hrtime.bigint() + 3_000_000_000n;
console.log('begun');
while (process.hrtime.bigint() < end) {
  const id = snowflake.generate();
  if (seen.has(id)) twice += 1;
  seen.add(id);
  count += 1;
}
console.log(`${twice} of ${count} ids twice`);
