# Common parts of the scripts. Source it first: it moves to the top of the repository.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# The usual installers put Rust and Go there, and some shells do not have it in PATH.
# Only once: build scripts of packages run anew where PATH is another.
case $PATH in
    *":$HOME/.cargo/bin:/usr/local/go/bin") ;;
    *) PATH="$PATH:$HOME/.cargo/bin:/usr/local/go/bin" ;;
esac
export PATH

# Tools that are built once on a machine, for all checkouts.
# shellcheck disable=SC2034 # For other scripts.
readonly TOOL_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/lorentz

# For what only tests run, and what watches no time: these crates take the longest to compile, and less of it with less
# optimization. Whoever builds a command in this way builds it anew afterwards (scripts/build).
# shellcheck disable=SC2034 # For other scripts.
quickly_built=()
for crate in agent cli container network runtime study web; do
    quickly_built+=(--config "profile.release.package.lorentz-$crate.opt-level=1"
        --config "profile.release.package.lorentz-$crate.codegen-units=16")
done
unset crate

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

version() { sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# Programs of packages name their sources below this directory, wherever they were built.
readonly SOURCES=/usr/src/lorentz

# For programs of packages, and the packages: those of one commit are the same, byte by byte, in each directory and at each time, and
# each program has the list of the Rust packages in it.
dist_environment() {
    # Archives take their dates from it, and lorentz-web those of the page's files.
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
    export SOURCE_DATE_EPOCH
    # Cargo derives the names of symbols and directories from flags, but not from these.
    export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo"$'\x1f'"--remap-path-prefix=$PWD=$SOURCES"
    # Further options of clang, whose BPF programs name the file of each line.
    export CCC_OVERRIDE_OPTIONS="#+-ffile-prefix-map=$PWD=$SOURCES"
    umask 022
    # `cargo auditable` sets these too, but it makes itself the wrapper of this workspace's crates alone. Cargo then derives the names
    # of symbols from the path of cargo-auditable.
    if [ -x build/tools/bin/cargo-auditable ]; then
        export RUSTC_WRAPPER=$PWD/build/tools/bin/cargo-auditable
        export CARGO_AUDITABLE_ORIG_ARGS='{"offline":true,"locked":true,"frozen":false,"config":[]}'
    fi
}
