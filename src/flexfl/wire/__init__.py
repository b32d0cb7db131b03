"""Encoding of messages as bytes; reported sizes are the lengths of these bytes."""

from flexfl.wire.sparse import WireError, decode, encode

__all__ = ["WireError", "decode", "encode"]
