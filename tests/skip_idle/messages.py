"""messages.py SCRIPTS: runs one process for each script and prints the time of each of its steps.

A script is a list of steps: ["sleep", seconds], ["send", to], ["receive", from]. A message is a
byte in a pipe.
"""

import json
import os
import sys
import time

scripts = json.loads(sys.argv[1])
every = range(len(scripts))
pipes = {(a, b): os.pipe() for a in every for b in every if a != b}
start = time.monotonic()


def work(me: int) -> None:
    done = []
    for what, argument in scripts[me]:
        if what == "sleep":
            time.sleep(argument)
        elif what == "send":
            os.write(pipes[me, argument][1], b"x")
        else:
            os.read(pipes[argument, me][0], 1)
        done.append(time.monotonic() - start)
    line = json.dumps({"ev": "worked", "who": me, "done": done}) + "\n"
    os.write(1, line.encode())


children = []
for me in every:
    child = os.fork()
    if child == 0:
        work(me)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
