// Fails if the first load is too large: the page with the live view of a network, all compressed.
// The terminal, the editor and the plots are chunks that come when somebody opens them.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const LIMIT = 130_000;
const dist = fileURLToPath(new URL('../dist/', import.meta.url));
const manifest = JSON.parse(readFileSync(`${dist}manifest.json`, 'utf8'));

/** All files that a chunk needs before it runs. */
function needed(key, found = new Set()) {
  const chunk = manifest[key];
  if (!chunk) throw new Error(`${key} is not in dist/manifest.json`);
  for (const file of [chunk.file, ...(chunk.css ?? [])]) found.add(file);
  for (const one of chunk.imports ?? []) needed(one, found);
  return found;
}

const size = (files) =>
  [...files].reduce((sum, file) => sum + gzipSync(readFileSync(dist + file), { level: 9 }).length, 0);
const page = new Set(['index.html', ...needed('index.html')]);
const live = new Set([...page, ...needed('src/views/NetworkView.svelte')]);
const rows = [
  ['start page', page],
  ['first load with the live view', live],
  ['with the editor', new Set([...page, ...needed('src/views/EditorView.svelte')])],
  ['the terminal', needed('src/lib/terminal.ts')],
];
for (const [name, files] of rows) console.log(`${(size(files) / 1000).toFixed(1).padStart(7)} kB  ${name}`);
if (size(live) > LIMIT) {
  console.error(`the first load is ${size(live)} bytes compressed; at most ${LIMIT} are accepted`);
  process.exit(1);
}
