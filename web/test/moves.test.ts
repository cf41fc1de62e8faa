import { describe, expect, it } from 'vitest';
import { Moves } from '../src/lib/moves.svelte';
import type { Act, ScheduledChange } from '../src/lib/types';

const down = (seconds: number): ScheduledChange => ({
  at_ns: `${seconds}000000000`,
  what: 'a:eth0: down',
  change: `{at: ${seconds}s}`,
});

/** Moves of a network whose server answers when it is told to. */
function moves() {
  const asked: Act[] = [];
  const answers: ((done: boolean) => void)[] = [];
  const names: string[] = [];
  const act = (request: Act) => {
    asked.push(request);
    return new Promise<boolean>((resolve) => answers.push(resolve));
  };
  const under = new Moves('net', act, (from, to) => names.push(`${from} -> ${to}`));
  return { under, asked, answers, names };
}

describe('moves of a schedule', () => {
  it('shows a change where it shall be, before the server has moved it', () => {
    const { under, asked } = moves();
    under.move(down(20), 30);
    expect(under.placeOf(down(20))).toBe(30);
    expect(asked).toEqual([{ do: 'schedule-move', network: 'net', change: '{at: 20s}', at: '30s' }]);
  });

  it('moves what is under way from where the server has it, once that is shown', () => {
    const { under, asked, names } = moves();
    under.move(down(20), 30);
    under.move(down(20), 31);
    under.move(down(20), 32);
    under.follow([down(20)]);
    expect(asked).toHaveLength(1);
    under.follow([down(30)]);
    expect(names).toEqual(['{at: 20s} -> {at: 30s}']);
    expect(asked[1]).toEqual({ do: 'schedule-move', network: 'net', change: '{at: 30s}', at: '32s' });
    under.follow([down(32)]);
    expect(under.isUnderWay(down(32))).toBe(false);
    expect(asked).toHaveLength(2);
  });

  it('removes what is under way once it has arrived', () => {
    const { under, asked } = moves();
    under.move(down(20), 30);
    under.remove(down(20));
    expect(asked).toHaveLength(1);
    under.follow([down(30)]);
    expect(asked[1]).toEqual({ do: 'schedule-rm', network: 'net', change: '{at: 30s}' });
  });

  it('goes back to where the server has a change if that refuses', async () => {
    const { under, answers } = moves();
    under.move(down(20), 30);
    answers[0]!(false);
    await Promise.resolve();
    await Promise.resolve();
    expect(under.placeOf(down(20))).toBe(20);
  });

  it('forgets what has come or was removed by others meanwhile', () => {
    const { under } = moves();
    under.move(down(20), 30);
    under.follow([]);
    expect(under.isUnderWay(down(20))).toBe(false);
  });

  it('asks nothing for a change that stays where it is', () => {
    const { under, asked } = moves();
    under.move(down(20), 20);
    expect(asked).toEqual([]);
  });
});
