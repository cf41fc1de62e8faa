#!/bin/bash
# bash's own ways to spend time. $1: nominal seconds. Prints one line per item, as lt.h describes.
nominal=$1

mono() { # the program's CLOCK_MONOTONIC is not to be had in bash: boot time from /proc serves
    local up rest
    read -r up rest < /proc/uptime
    printf '%s' "$up"
}

item() { # item NAME WAITS COMMAND...: the command waits so many times
    local name=$1 waits=$2 start end
    shift 2
    printf '{"ev":"ready","case":"%s"}\n' "$name"
    start=$EPOCHREALTIME
    "$@"
    end=$EPOCHREALTIME
    awk -v n="$name" -v w="$waits" -v a="$start" -v b="$end" -v e="$nominal" \
        'BEGIN { printf "{\"ev\":\"done\",\"case\":\"%s\",\"waits\":%d,\"elapsed\":%.6f,\"expect\":%s}\n", n, w, b - a, e }'
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
item sleep 1 sleep "$nominal"
item loop 5 loop
item background 1 background
item timeout 1 timeout_kills
item read-t 1 read_timeout
printf '{"ev":"year","year":%s,"seconds":%s,"uptime":%s}\n' "$(date +%Y)" "$SECONDS" "$(mono)"
printf '{"ev":"end"}\n'
