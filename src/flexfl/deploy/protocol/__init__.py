"""The conversation between server and clients, free of transport: two state machines that survive crashes.

    server                                client
    asks(): a question for each  ──────▶  answer(question): works, commits, answers
    hear(sender, answer)         ◀──────
    close(): commits, goes on

Whoever carries the messages may lose, delay, repeat and reorder them.
"""

from flexfl.deploy.protocol.client import Client
from flexfl.deploy.protocol.downlink import Downlink
from flexfl.deploy.protocol.greeting import Hello, Ready, Stranger
from flexfl.deploy.protocol.messages import Answer, Ask, Fate, ProtocolError
from flexfl.deploy.protocol.server import Server
from flexfl.deploy.protocol.store import SqliteStore, Store
from flexfl.deploy.protocol.work import Made, Work

__all__ = [
    "Answer",
    "Ask",
    "Client",
    "Downlink",
    "Fate",
    "Hello",
    "Made",
    "ProtocolError",
    "Ready",
    "Server",
    "SqliteStore",
    "Store",
    "Stranger",
    "Work",
]
