# Functions of the scripts. Source it.
# shellcheck shell=sh

# faketime_at_offset PROGRAM...: runs a program whose clock is off by the seconds in the file `offset`.
faketime_at_offset() {
    [ -e offset ] || echo +0 >offset
    # The wrapper sets the variable by which the library is loaded; given a date, it would not read the file.
    preload=$(faketime -f +0 printenv LD_PRELOAD)
    FAKETIME_TIMESTAMP_FILE=$PWD/offset LD_PRELOAD=$preload exec "$@"
}

# step_faketime SECONDS: changes the clock of what runs.
step_faketime() { echo "$1" >offset; }

# free_ports: prints two ports of loopback that nothing listens at.
free_ports() {
    python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in "12"]
print(*(each.getsockname()[1] for each in sockets))'
}
