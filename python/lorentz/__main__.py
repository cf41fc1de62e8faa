"""`python -m lorentz` is the `lorentz` command."""

import os
import sys

from lorentz._native import LorentzError, command


def main() -> None:
    """Take this process's place by the command, with the words of its command line."""
    try:
        path = command()
        os.execv(path, [path, *sys.argv[1:]])
    except (LorentzError, OSError) as error:
        sys.exit(f"python -m lorentz: {error}")


main()
