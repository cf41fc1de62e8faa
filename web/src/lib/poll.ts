/**
 * Calls `task` now, and again `intervalMs` after each of its ends. `task` is given a function that tells whether polling is over; an
 * error of it goes to `failed`, and polling goes on. Returns the function that ends the polling: an effect can return it.
 */
export function poll(
  intervalMs: number,
  task: (isOver: () => boolean) => Promise<void>,
  failed: (reason: Error) => void,
): () => void {
  let over = false;
  let timer: ReturnType<typeof setTimeout>;
  async function run(): Promise<void> {
    try {
      await task(() => over);
    } catch (reason) {
      if (!over) failed(reason as Error);
    }
    if (!over) timer = setTimeout(run, intervalMs);
  }
  void run();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
