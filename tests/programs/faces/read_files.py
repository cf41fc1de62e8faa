"""Reads files. For each line of standard input, a JSON list of paths, it prints a JSON line with
their texts, or null for a file that cannot be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def text_of(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


if __name__ == "__main__":
    print(json.dumps({"ev": "ready"}), flush=True)
    for number, line in enumerate(sys.stdin):
        texts = [text_of(path) for path in json.loads(line)]
        print(json.dumps({"ev": "texts", "number": number, "texts": texts}), flush=True)
