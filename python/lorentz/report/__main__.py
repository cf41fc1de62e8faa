"""`lorentz report`, which calls `python -m lorentz.report`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from lorentz.report.runs import WrongRunError, read

WRONG_INPUT = 2


def main() -> int:
    """Runs the command line and returns its exit status."""
    parser = argparse.ArgumentParser(prog="lorentz report")
    parser.add_argument("runs", metavar="RUN", nargs="+")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True)
    parser.add_argument("--against", metavar="OLD", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        runs = read(arguments.runs)
        older = read(arguments.against) if arguments.against else None
        # Loading the statistics libraries takes seconds. Refuse a wrong file before that.
        from lorentz.report.page import named, write

        said = write(runs, arguments.output, older)
    except WrongRunError as error:
        print(f"lorentz: {error}", file=sys.stderr)
        return WRONG_INPUT
    page = arguments.output / "index.html"
    if arguments.json:
        results = arguments.output / "results.json"
        print(json.dumps({"page": str(page), "results": str(results), "summary": said}, indent=2))
    else:
        print("\n".join(named(said)))
        print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
