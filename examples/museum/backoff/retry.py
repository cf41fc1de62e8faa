import backoff


@backoff.on_exception(backoff.constant, ConnectionError, max_time=3, interval=0.2, jitter=None)
def call() -> None:
    print("try")
    raise ConnectionError


try:
    call()
except ConnectionError:
    print("gave up")
