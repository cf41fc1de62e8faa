from retrying import retry


@retry(stop_max_delay=3000, wait_fixed=200)
def call() -> None:
    print("try")
    raise ConnectionError


try:
    call()
except ConnectionError:
    print("gave up")
