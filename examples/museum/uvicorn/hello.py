from collections.abc import Awaitable, Callable


async def app(scope: dict, receive: Callable, send: Callable[[dict], Awaitable[None]]) -> None:
    """The smallest web application."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"welcome to the shop\n"})
