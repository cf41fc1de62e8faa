// One loop that redraws all clocks. With `prefers-reduced-motion` it runs once a second.

const FRAME_MS = 33;
const CALM_MS = 1000;

const drawn = new Set<() => void>();
const calm = matchMedia('(prefers-reduced-motion: reduce)');
let last = 0;
let running = false;

/** True if clocks show whole seconds only. */
export function isCalm(): boolean {
  return calm.matches;
}

/** Calls `draw` now and at each frame; returns the function that ends it. */
export function eachFrame(draw: () => void): () => void {
  drawn.add(draw);
  draw();
  if (!running) {
    running = true;
    requestAnimationFrame(frame);
  }
  return () => drawn.delete(draw);
}

function frame(at: number): void {
  if (drawn.size === 0) {
    running = false;
    return;
  }
  if (at - last >= (calm.matches ? CALM_MS : FRAME_MS)) {
    last = at;
    for (const draw of drawn) draw();
  }
  requestAnimationFrame(frame);
}
