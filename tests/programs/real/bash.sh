#!/bin/bash
# bash's own ways to spend time. $1: nominal seconds. Prints one line per item, as lt.h describes.
nominal=$1

mono() { # the program's CLOCK_MONOTONIC is not to be had in bash: boot time from /proc serves
    local up rest
    read -r up rest < /proc/uptime
    printf '%s' "$up"
}

item() { # item NAME COMMAND...
    local name=$1 start end
    shift
    printf '{"ev":"ready","case":"%s"}\n' "$name"
    start=$EPOCHREALTIME
    "$@"
    end=$EPOCHREALTIME
    awk -v n="$name" -v a="$start" -v b="$end" -v e="$nominal" \
        'BEGIN { printf "{\"ev\":\"done\",\"case\":\"%s\",\"elapsed\":%.6f,\"expect\":%s}\n", n, b - a, e }'
}

read_timeout() { # of a pipe that stays open and empty
    local silent
    exec {silent}<> <(:)
    read -r -t "$nominal" _ <&"$silent"
    exec {silent}<&-
}
loop() { for _ in 1 2 3 4 5; do sleep "$fifth"; done; }
background() { sleep "$nominal" & wait $!; }
timeout_kills() { timeout "$nominal" sleep 1000; }

fifth=$(awk -v n="$nominal" 'BEGIN { print n / 5 }')
item sleep sleep "$nominal"
item loop loop
item background background
item timeout timeout_kills
item read-t read_timeout
printf '{"ev":"year","year":%s,"seconds":%s,"uptime":%s}\n' "$(date +%Y)" "$SECONDS" "$(mono)"
printf '{"ev":"end"}\n'
