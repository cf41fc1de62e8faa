// The address names the view: #/network/lab/list?node=client.

export interface Route {
  /** Path segments, decoded. */
  path: string[];
  query: URLSearchParams;
}

function parse(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let route = $state.raw<Route>(parse(location.hash));
addEventListener('hashchange', () => (route = parse(location.hash)));

export function current(): Route {
  return route;
}

/** The address of a view. Entries of `query` that are null are left out. */
export function address(path: string[], query: Record<string, string | null | undefined> = {}): string {
  const kept = Object.entries(query).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  const text = new URLSearchParams(kept).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export function go(target: string): void {
  location.hash = target;
}

/** Changes the address without a step in the history. */
export function amend(target: string): void {
  history.replaceState(null, '', target);
  route = parse(location.hash);
}
