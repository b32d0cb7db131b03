"""What a shell offers when Tab is pressed, beside commands, options and files.

Where nothing here begins as the word does, the shell offers files.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable


def specs(incomplete: str) -> list[str]:
    """Return the specs that ship and begin so."""
    folder = resources.files("flexfl.spec") / "shipped"
    return _names(folder, incomplete)


def methods(incomplete: str) -> list[str]:
    """Return the methods to compare, and the specs, that ship and begin so."""
    folder = resources.files("flexfl.spec") / "shipped"
    return sorted(_names(folder, incomplete) + _names(folder / "methods", incomplete))


def _names(folder: Traversable, incomplete: str) -> list[str]:
    names = (entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return sorted(name for name in names if name.startswith(incomplete))


def datasets(incomplete: str) -> list[str]:
    """Return the datasets that can be fetched and begin so."""
    from flexfl.data.catalogue import CATALOGUE

    return [name for name in CATALOGUE if name.startswith(incomplete)]


def budgets(incomplete: str) -> list[str]:
    """Return the budgets of the knobs that begin so, to be followed by values."""
    from flexfl.parameters import KNOBS

    return [f"budget.{knob}=" for knob in KNOBS if f"budget.{knob}=".startswith(incomplete)]
