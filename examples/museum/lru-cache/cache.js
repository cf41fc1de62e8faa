const LRU = require('lru-cache');

// Version 6 calls it maxAge, version 7 ttl.
const cache = new LRU({ max: 10, maxAge: 2000, ttl: 2000 });
cache.set('price', 42);
console.log('begun');
setTimeout(() => console.log(cache.get('price') ? 'still cached' : 'expired'), 5000);
