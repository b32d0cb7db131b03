"""Encoding of messages as bytes; reported sizes are the lengths of these bytes."""

from flexfl.wire.sparse import WireError, decode, encode, message_bytes, sendable

__all__ = ["WireError", "decode", "encode", "message_bytes", "sendable"]
