import filelock

owner = filelock.FileLock("lock")
owner.acquire()
print("wait")
try:
    filelock.FileLock("lock").acquire(timeout=3600)
except filelock.Timeout:
    print("gave up")
