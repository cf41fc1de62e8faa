// State of the editor: the file's text is everything, and undo is the text's history.

import { getContext, setContext } from 'svelte';
import { scaleOf } from './layout';
import { get, post, readFile, Refused, writeFile } from './session.svelte';
import type { Schema } from './schema';
import { EMPTY, read, type Topology } from './topology';
import type { CheckResult, ImportResult } from './types';

const KEY = Symbol('editor');
const MOST_STEPS = 300;
/** Typing within this time is one step of undo. */
const TYPING_MS = 800;
const CHECK_MS = 400;

export type Selection =
  { kind: 'node'; name: string } | { kind: 'link'; index: number } | { kind: 'change'; index: number } | null;

export class Editor {
  text = $state(EMPTY);
  path = $state('');
  etag: string | null = null;
  /** The text as it is in the file. */
  saved = $state<string | null>(null);
  error = $state('');
  notes = $state<string[]>([]);
  checked = $state<CheckResult | null>(null);
  selection = $state<Selection>(null);
  schema = $state.raw<Schema | null>(null);
  /** Pixels for a unit of the file's positions; fixed when the file opens, so that nothing jumps. */
  scale = $state(1);

  private past = $state<string[]>([]);
  private future = $state<string[]>([]);
  private typed = 0;
  private checking: ReturnType<typeof setTimeout> | undefined;
  private known: Topology = read(EMPTY)!;

  /** What the text says; while it is no YAML, what it said before. */
  readonly topology: Topology = $derived.by(() => {
    const now = read(this.text);
    if (now) this.known = now;
    return now ?? this.known;
  });
  readonly valid = $derived(read(this.text) !== null);
  readonly changed = $derived(this.text !== this.saved);

  get canUndo(): boolean {
    return this.past.length > 0;
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  async open(path: string): Promise<void> {
    this.schema = await get<Schema>('/api/v1/schema');
    if (path) {
      this.path = path;
      if (/\.(xml|imn|clab\.ya?ml)$|(^|\/)lab\.conf$/.test(path)) await this.take({ path });
      else {
        const { text, etag } = await readFile(path);
        this.etag = etag;
        this.saved = text;
        this.text = text;
      }
    }
    this.rescale();
    this.check();
  }

  /** Takes a scenario of another emulator as a new file. */
  async take(from: { path: string } | { text: string; format: string }): Promise<void> {
    const { yaml, notes } = await post<ImportResult>('/api/v1/import', from);
    this.notes = notes;
    this.etag = null;
    this.saved = null;
    if ('path' in from) this.path = from.path.replace(/(\.clab)?\.[^./]+$/, '.yaml');
    this.set(yaml);
    this.rescale();
  }

  /** Sets the text as one step of undo. */
  set(text: string): void {
    if (text === this.text) return;
    this.past = [...this.past, this.text].slice(-MOST_STEPS);
    this.future = [];
    this.typed = 0;
    this.text = text;
    this.check();
  }

  /** Sets the text as a person types it. */
  type(text: string): void {
    const now = performance.now();
    if (now - this.typed > TYPING_MS) this.set(text);
    else {
      this.text = text;
      this.check();
    }
    this.typed = now;
  }

  /** Applies an edit; says why where it is not possible. */
  edit(change: (text: string) => string): boolean {
    try {
      this.error = '';
      this.set(change(this.text));
      return true;
    } catch (reason) {
      this.error = (reason as Error).message;
      return false;
    }
  }

  undo(): void {
    const before = this.past.at(-1);
    if (before === undefined) return;
    this.past = this.past.slice(0, -1);
    this.future = [...this.future, this.text];
    this.text = before;
    this.check();
  }

  redo(): void {
    const after = this.future.at(-1);
    if (after === undefined) return;
    this.future = this.future.slice(0, -1);
    this.past = [...this.past, this.text];
    this.text = after;
    this.check();
  }

  /** Writes the file. Returns false, and says why, if that was not possible. */
  async save(): Promise<boolean> {
    const path = this.path.trim();
    if (!path) {
      this.error = 'The file needs a name, as lab.yaml.';
      return false;
    }
    try {
      const text = this.text;
      this.etag = await writeFile(path, text, this.etag);
      this.saved = text;
      this.error = '';
      return true;
    } catch (reason) {
      const changed = reason instanceof Refused && reason.status === 412;
      this.error = changed
        ? this.etag === null
          ? `There is a file ${path} already. Choose another name.`
          : `Somebody has changed ${path} meanwhile. Copy your text, and open the file anew.`
        : (reason as Error).message;
      return false;
    }
  }

  /** A name in another file: that one must not exist. */
  rename(path: string): void {
    if (path === this.path) return;
    this.path = path;
    this.etag = null;
    this.saved = null;
  }

  private rescale(): void {
    const positions = this.topology.nodes.flatMap((node) => (node.position ? [node.position] : []));
    this.scale = positions.length > 1 ? scaleOf(positions) : 1;
  }

  private check(): void {
    clearTimeout(this.checking);
    this.checking = setTimeout(async () => {
      const text = this.text;
      try {
        const checked = await post<CheckResult>('/api/v1/check', {
          text,
          ...(this.path ? { path: this.path } : {}),
        });
        if (text === this.text) this.checked = checked;
      } catch (reason) {
        this.error = (reason as Error).message;
      }
    }, CHECK_MS);
  }
}

export function provide(editor: Editor): Editor {
  return setContext(KEY, editor);
}

export function editor(): Editor {
  return getContext<Editor>(KEY);
}
