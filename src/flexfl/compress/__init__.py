"""What may be sent of a vector: messages, and the compressors that ship."""

from flexfl.compress.base import Choices, Compressor, LargestFirst, Offers, Random
from flexfl.compress.levels import Levels
from flexfl.compress.message import Message, levels_bytes, message_bytes, table_bytes
from flexfl.compress.plain import PlainVectors
from flexfl.compress.rounded import RoundedTopK
from flexfl.compress.topk import TopK, topk_mask
from flexfl.registry import Family

COMPRESSORS = Family("compressor", {"top-k": TopK, "rounded": RoundedTopK, "levels": Levels})

__all__ = [
    "COMPRESSORS",
    "Choices",
    "Compressor",
    "LargestFirst",
    "Levels",
    "Message",
    "Offers",
    "PlainVectors",
    "Random",
    "RoundedTopK",
    "TopK",
    "levels_bytes",
    "message_bytes",
    "table_bytes",
    "topk_mask",
]
