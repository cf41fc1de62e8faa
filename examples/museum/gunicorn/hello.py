from collections.abc import Callable


def app(environ: dict, start_response: Callable) -> list[bytes]:
    """The smallest web application."""
    start_response("200 OK", [])
    return [b"hello"]
