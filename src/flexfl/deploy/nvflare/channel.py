"""The messages on NVFlare's cells: raw bytes, one way, and from whom.

Straight on the core cell, not on its auxiliary channel: that one cuts every message into an
acknowledged stream, wraps it in serialised objects, and does not tell its handler who sent it.
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
    """Send without waiting. Optional: a target that is not there (yet) is no error, and no line in a log."""
    cell.core_cell.fire_and_forget(CHANNEL, topic, target, Message(payload=data), optional=True)


def listen(cell: Any, topic: str, heard: Callable[[str, str, bytes], None]) -> None:
    """Call `heard(name, origin, data)` for every message, in one of NVFlare's threads.

    name    whom the server has signed the sender's token for. It does so at registration, after the
            site has proved to hold the key of the certificate with that name, and its parent process
            checks the signature on every message that passes (fed_server.py, authenticator.py)
    origin  the cell that the message says it comes from. The server's parent process compares it
            with the one that registered, but only for tokens it still knows: so believe it only
            together with the name
    """

    def received(message: Any) -> None:
        name = message.get_header(CellMessageAuthHeaderKey.CLIENT_NAME, "")
        heard(name, message.get_header(MessageHeaderKey.ORIGIN, ""), bytes(message.payload or b""))

    cell.core_cell.register_request_cb(CHANNEL, topic, received)
