import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { poll } from '../src/lib/poll';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

test('a task is called at once, and an interval after each end, also after a failure', async () => {
  const failed = vi.fn();
  const task = vi.fn(async () => {
    if (task.mock.calls.length === 2) throw new Error('gone');
  });
  const end = poll(1000, task, failed);
  expect(task).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(2000);
  expect(task).toHaveBeenCalledTimes(3);
  expect(failed).toHaveBeenCalledExactlyOnceWith(new Error('gone'));
  end();
  await vi.advanceTimersByTimeAsync(5000);
  expect(task).toHaveBeenCalledTimes(3);
});

test('a task that is under way learns of the end, and its failure is nobody’s then', async () => {
  const failed = vi.fn();
  let told = false;
  const end = poll(
    1000,
    async (isOver) => {
      await new Promise((done) => setTimeout(done, 100));
      told = isOver();
      throw new Error('late');
    },
    failed,
  );
  end();
  await vi.advanceTimersByTimeAsync(5000);
  expect(told).toBe(true);
  expect(failed).not.toHaveBeenCalled();
});
