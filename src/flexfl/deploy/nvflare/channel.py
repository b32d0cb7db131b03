"""One-way messages of raw bytes between NVFlare's cells, with the sender's authenticated name.

They use the core cell directly, not its auxiliary channel, which splits every message into an
acknowledged stream, wraps it in serialised objects, and does not give its handler the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvflare.apis.fl_constant import CellMessageAuthHeaderKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

CHANNEL = "flexfl"
ASK, ANSWER = "ask", "answer"


def fire(cell: Any, topic: str, target: str, data: bytes) -> None:
    """Send a message without waiting; a target that is not connected is neither an error nor logged."""
    cell.core_cell.fire_and_forget(CHANNEL, topic, target, Message(payload=data), optional=True)


def listen(cell: Any, topic: str, on_message: Callable[[str, str, bytes], None]) -> None:
    """Call `on_message(name, origin, data)` for every message, in one of NVFlare's threads.

    `name` is the name that the server signed the sender's token for. It signs at registration, after
    the site has proved to hold the key of the certificate with that name, and its parent process
    verifies the signature on every message it forwards (fed_server.py, authenticator.py).

    `origin` is the cell that the message claims to come from. The server's parent process compares it
    with the one that registered, but only for tokens it still knows; so trust it only together with
    the name.
    """

    def receive(message: Any) -> None:
        name = message.get_header(CellMessageAuthHeaderKey.CLIENT_NAME, "")
        on_message(name, message.get_header(MessageHeaderKey.ORIGIN, ""), bytes(message.payload or b""))

    cell.core_cell.register_request_cb(CHANNEL, topic, receive)
