"""Messages as bytes; sizes are the length of the bytes."""

from flexfl.wire.sparse import WireError, decode, encode

__all__ = ["WireError", "decode", "encode"]
