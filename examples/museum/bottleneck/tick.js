const Bottleneck = require('bottleneck');

const limiter = new Bottleneck({ minTime: 200 });
const job = () => limiter.schedule(async () => console.log('tick')).then(job);
job();
