// The session with the server: the token of the page's address is exchanged once for a cookie, and for a second
// token that each changing request carries in a header.

import type { About } from './types';

let changeToken = '';

/** `locked`: the server wants a token that this page does not have. */
export const session = $state<{ phase: 'opening' | 'open' | 'locked' | 'unreachable'; about: About | null }>({
  phase: 'opening',
  about: null,
});

/** An answer with an error status. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Exchanges the token in the address, if there is one, and asks about the server. */
export async function open(): Promise<void> {
  const token = /^#([A-Za-z0-9_-]{16,})$/.exec(location.hash)?.[1];
  try {
    if (token) {
      // The token leaves the address bar and the history at once.
      history.replaceState(null, '', '#/');
      await exchange(token);
    } else {
      changeToken = (await get<{ change_token: string }>('/api/v1/session')).change_token;
    }
    session.about = await get<About>('/api/v1/about');
    session.phase = 'open';
  } catch (error) {
    session.phase = error instanceof Refused && [401, 403].includes(error.status) ? 'locked' : 'unreachable';
  }
}

/** Opens the session with a token that a person pasted: the token, or the whole address. */
export async function unlock(pasted: string): Promise<void> {
  await exchange(pasted.trim().replace(/^.*#/, ''));
  session.about = await get<About>('/api/v1/about');
  session.phase = 'open';
}

async function exchange(token: string): Promise<void> {
  const answer = await fetch('/api/v1/session', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token }),
  });
  const { change_token } = (await taken(answer)) as { change_token: string };
  changeToken = change_token;
}

/** GET of a JSON resource. Throws `Refused` with the server's line. */
export async function get<T>(path: string): Promise<T> {
  return (await taken(await fetch(path, { headers: { Accept: 'application/json' } }))) as T;
}

/** POST of JSON. Throws `Refused` with the server's line. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await taken(
    await fetch(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Lorentz-Token': changeToken },
      body: JSON.stringify(body),
    }),
  )) as T;
}

/** A topology file's text and its version. */
export async function readFile(path: string): Promise<{ text: string; etag: string }> {
  const answer = await fetch(fileAddress(path));
  if (!answer.ok) throw await refusal(answer);
  return { text: await answer.text(), etag: answer.headers.get('ETag') ?? '' };
}

/** The topology file of a network as it runs. */
export async function readTopology(network: string): Promise<string> {
  const answer = await fetch(`/api/v1/networks/${encodeURIComponent(network)}/topology`);
  if (!answer.ok) throw await refusal(answer);
  return answer.text();
}

/** Writes a file. `etag`: the version that was read, or null for a file that must not exist. */
export async function writeFile(path: string, text: string, etag: string | null): Promise<string> {
  const answer = await fetch(fileAddress(path), {
    method: 'PUT',
    headers: {
      'Content-Type': 'text/plain',
      'X-Lorentz-Token': changeToken,
      ...(etag === null ? { 'If-None-Match': '*' } : { 'If-Match': etag }),
    },
    body: text,
  });
  return ((await taken(answer)) as { etag: string }).etag;
}

function fileAddress(path: string): string {
  return `/api/v1/files/${path.split('/').map(encodeURIComponent).join('/')}`;
}

async function taken(answer: Response): Promise<unknown> {
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

async function refusal(answer: Response): Promise<Refused> {
  const text = await answer.text();
  let line = text.split('\n')[0] || answer.statusText;
  try {
    line = (JSON.parse(text) as { error?: string }).error ?? line;
  } catch {
    // The line is the body's own.
  }
  return new Refused(answer.status, line);
}

/** Address of a WebSocket of the same server. */
export function socketAddress(path: string): string {
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${path}`;
}
