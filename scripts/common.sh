# Common parts of the scripts. Source it first: it moves to the top of the repository.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# The usual installers put Rust and Go there, and some shells do not have it in PATH.
PATH="$PATH:$HOME/.cargo/bin:/usr/local/go/bin"
export PATH

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

fail() {
    say "$*"
    exit 1
}
