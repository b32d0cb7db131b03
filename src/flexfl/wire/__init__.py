"""Messages as bytes; sizes are the length of the bytes."""

from flexfl.wire.sparse import WireError, decode, encode, message_bytes, sendable

__all__ = ["WireError", "decode", "encode", "message_bytes", "sendable"]
