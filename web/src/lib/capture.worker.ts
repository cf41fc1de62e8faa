// Decodes captures beside the page's own thread.

import { decode } from './decode';
import { Reader } from './pcapng';

export interface Row {
  instant: string;
  length: number;
  direction: 'in' | 'out' | null;
  protocol: string;
  source: string;
  destination: string;
  info: string;
}

const reader = new Reader();

onmessage = ({ data }: MessageEvent<ArrayBuffer>) => {
  try {
    const rows: Row[] = reader.push(new Uint8Array(data)).map((packet) => ({
      instant: String(packet.instant),
      length: packet.length,
      direction: packet.direction,
      ...decode(packet.data),
    }));
    if (rows.length) postMessage({ rows });
  } catch (error) {
    postMessage({ error: (error as Error).message });
  }
};
