"""What may be sent of a vector: messages, and the compressors that ship."""

from flexfl.compress.base import Choices, Compressor, LargestFirst, Offers, Random
from flexfl.compress.levels import Levels
from flexfl.compress.message import Message, levels_bytes, message_bytes, table_bytes
from flexfl.compress.plain import PlainVectors
from flexfl.compress.randk import RandK
from flexfl.compress.rounded import RoundedTopK
from flexfl.compress.sign import Sign
from flexfl.compress.ternary import Ternary
from flexfl.compress.threshold import Threshold
from flexfl.compress.topk import TopK, topk_mask
from flexfl.compress.uniform import Uniform
from flexfl.registry import Family

COMPRESSORS = Family(
    "compressor",
    {
        "top-k": TopK,
        "rounded": RoundedTopK,
        "levels": Levels,
        "threshold": Threshold,
        "rand-k": RandK,
        "uniform": Uniform,
        "sign": Sign,
        "ternary": Ternary,
    },
)

__all__ = [
    "COMPRESSORS",
    "Choices",
    "Compressor",
    "LargestFirst",
    "Levels",
    "Message",
    "Offers",
    "PlainVectors",
    "RandK",
    "Random",
    "RoundedTopK",
    "Sign",
    "Ternary",
    "Threshold",
    "TopK",
    "Uniform",
    "levels_bytes",
    "message_bytes",
    "table_bytes",
    "topk_mask",
]
