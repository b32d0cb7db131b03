"""The conversation between server and clients, free of transport: two state machines that survive crashes.

    server                                     client
    questions(): one for each client  ──────▶  answer(question): computes, commits, answers
    receive(sender, answer)           ◀──────
    close(): commits the iteration

Whoever carries the messages may lose, delay, repeat and reorder them.
"""

from flexfl.deploy.protocol.client import Client
from flexfl.deploy.protocol.greeting import Hello, Ready, Restarted
from flexfl.deploy.protocol.messages import Acknowledgement, Answer, ProtocolError, Question
from flexfl.deploy.protocol.server import Server
from flexfl.deploy.protocol.store import SqliteStore, Store
from flexfl.deploy.protocol.trainer import Trainer

__all__ = [
    "Acknowledgement",
    "Answer",
    "Client",
    "Hello",
    "ProtocolError",
    "Question",
    "Ready",
    "Restarted",
    "Server",
    "SqliteStore",
    "Store",
    "Trainer",
]
