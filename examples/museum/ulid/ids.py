import time

from ulid import monotonic

last = monotonic.new()
print("first", flush=True)
while time.sleep(0.01) is None:
    new = monotonic.new()
    if new.bytes <= last.bytes:
        print("an id sorts before an older one", flush=True)
        break
    last = new
