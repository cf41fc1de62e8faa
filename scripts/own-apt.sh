# An apt of its own for a suite of Debian, in a directory: no package counts as installed, and the system stays as it is. Source it
# after common.sh.
# shellcheck shell=bash

# Makes the apt and fetches its lists of packages.
own_apt_begin() { # SUITE DIRECTORY
    mkdir -p "$2"/{lists,cache}/partial "$2/cache/archives/partial"
    : >"$2/status"
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg kind
    [ -r "$keys" ] || fail "no $keys; please install debian-archive-keyring"
    for kind in deb deb-src; do echo "$kind [signed-by=$keys] http://deb.debian.org/debian $1 main"; done >"$2/sources.list"
    cat >"$2/apt.conf" <<EOF
Dir::Etc::sourcelist "$2/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$2/lists";
Dir::State::status "$2/status";
Dir::Cache "$2/cache";
EOF
    own_apt "$2" update
}

# Calls apt-get in DIRECTORY/cache, for what it downloads.
own_apt() { # DIRECTORY WORD...
    (cd "$1/cache" && apt-get -qq -c "$1/apt.conf" -o APT::Sandbox::User=root "${@:2}" </dev/null >"$1/log" 2>&1) && return
    tail -n 5 "$1/log" >&2
    return 1
}

# Removes the lists and what was downloaded.
own_apt_end() { rm -rf "$1"/{lists,cache,status,sources.list,apt.conf}; } # DIRECTORY
