"""What a person may set: the schema of a run, its loading and what it builds."""

from flexfl.spec.load import load_spec, shipped, to_toml
from flexfl.spec.schema import Spec, parse

__all__ = ["Spec", "load_spec", "parse", "shipped", "to_toml"]
