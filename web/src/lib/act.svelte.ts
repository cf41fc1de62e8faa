// Acts by the server: each is a command line of `lorentz`, which the page shows.

import { post, Refused } from './session.svelte';
import type { Act, Done } from './types';

export interface Entry {
  id: number;
  command: string;
  state: 'runs' | 'done' | 'failed';
  text: string;
}

const KEPT = 100;
let next = 1;

/** The acts of this page, the newest first. */
export const log = $state<Entry[]>([]);

/** Text of the last act, for screen readers and the toast. */
export const last = $state<{ entry: Entry | null }>({ entry: null });

/** Runs an act. Returns true if the command ended with status 0. */
export async function act(request: Act): Promise<boolean> {
  const id = next++;
  log.unshift({ id, command: `lorentz ${request.do} …`, state: 'runs', text: '' });
  log.length = Math.min(log.length, KEPT);
  const entry = log[0]!;
  try {
    const done = await post<Done>('/api/v1/do', request);
    entry.command = done.command;
    entry.state = done.status === 0 ? 'done' : 'failed';
    entry.text = (done.status === 0 ? done.output || done.error : done.error || done.output).trim();
  } catch (error) {
    entry.state = 'failed';
    entry.text = error instanceof Refused ? error.message : 'The server does not answer.';
  }
  last.entry = entry;
  return entry.state === 'done';
}

/** As `act`, for a form that tells the reason itself. Returns why the command failed, or null. */
export async function actInForm(request: Act): Promise<string | null> {
  if (await act(request)) return null;
  const reason = last.entry?.text ?? '';
  last.entry = null;
  return reason;
}

/** The command line of an act, which does not run. */
export async function commandOf(request: Act): Promise<string> {
  return (await post<Done>('/api/v1/do', { ...request, dry: true })).command;
}
