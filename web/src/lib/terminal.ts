// A terminal on a node: xterm.js on a WebSocket. All that arrives is untrusted.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';

export interface Size {
  columns: number;
  rows: number;
}

const THEME = {
  background: '#0e1116',
  foreground: '#dfe5ee',
  cursor: '#dfe5ee',
  selectionBackground: '#3b5b9a88',
  black: '#1b222c',
  red: '#ff8a80',
  green: '#6fd39b',
  yellow: '#e6b455',
  blue: '#83a9ff',
  magenta: '#d6a0f0',
  cyan: '#6fcfdc',
  white: '#c9d2de',
  brightBlack: '#7a8797',
  brightRed: '#ffaca5',
  brightGreen: '#95e6b8',
  brightYellow: '#f2cd83',
  brightBlue: '#abc5ff',
  brightMagenta: '#e6c2f7',
  brightCyan: '#9ce3ec',
  brightWhite: '#ffffff',
};

/**
 * Runs `open`, in which xterm.js makes `<style>` elements for its rules, which the content security policy forbids. So
 * elements that are no style sheets stand in for them: each hands its text to a constructed style sheet, which the policy
 * allows. The option `documentOverride` does not reach all of these elements (xterm.js 6.0).
 */
function withoutStyleElements(open: () => void): CSSStyleSheet[] {
  const made: CSSStyleSheet[] = [];
  const usual = document.createElement.bind(document);
  const createElement = (name: string, options?: ElementCreationOptions): HTMLElement => {
    if (name.toLowerCase() !== 'style') return usual(name, options);
    const sheet = new CSSStyleSheet();
    made.push(sheet);
    const stand = usual('span');
    stand.hidden = true;
    Object.defineProperty(stand, 'textContent', {
      get: () => '',
      set: (css: string) => sheet.replaceSync(css),
    });
    return stand;
  };
  document.createElement = createElement as typeof document.createElement;
  try {
    open();
  } finally {
    // The method of the prototype is in sight again.
    delete (document as Partial<Document>).createElement;
  }
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, ...made];
  return made;
}

/**
 * Opens a terminal in `box`. `heard` is called at each output; `ended` gets a sentence once the shell or the connection has
 * ended.
 */
export function openTerminal(
  box: HTMLElement,
  address: (size: Size) => string,
  heard: () => void,
  ended: (text: string) => void,
): { fit: () => void; close: () => void } {
  const terminal = new Terminal({
    fontFamily: "ui-monospace, 'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    fontSize: 13,
    scrollback: 5000,
    theme: THEME,
    screenReaderMode: false,
    // Links by OSC 8 are shown and lead nowhere.
    linkHandler: { activate: () => {} },
  });
  // OSC 52 would let a program read or write the clipboard.
  terminal.parser.registerOscHandler(52, () => true);
  const fitting = new FitAddon();
  terminal.loadAddon(fitting);
  const sheets = withoutStyleElements(() => terminal.open(box));
  fitting.fit();

  const socket = new WebSocket(address({ columns: terminal.cols, rows: terminal.rows }));
  socket.binaryType = 'arraybuffer';
  const encoder = new TextEncoder();
  let status: string | null = null;

  socket.addEventListener('message', ({ data }) => {
    if (typeof data !== 'string') {
      heard();
      return terminal.write(new Uint8Array(data as ArrayBuffer));
    }
    const { exit } = JSON.parse(data) as { exit: number };
    status = `The shell has ended with status ${exit}.`;
  });
  socket.addEventListener('close', ({ reason }) =>
    ended(status ?? (reason || 'The connection to the terminal has ended.')),
  );
  const send = (bytes: Uint8Array<ArrayBuffer>) => socket.readyState === WebSocket.OPEN && socket.send(bytes);
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (one) => one.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ columns: cols, rows }));
  });

  const fit = () => {
    if (box.clientWidth > 0) fitting.fit();
  };
  const observer = new ResizeObserver(fit);
  observer.observe(box);
  terminal.focus();

  return {
    fit: () => {
      fit();
      terminal.focus();
    },
    close: () => {
      observer.disconnect();
      socket.close();
      terminal.dispose();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
    },
  };
}
