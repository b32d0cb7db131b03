"""Names in a spec: the nearest known one, and objects by import path."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flexfl.errors import Fault, InputError

GIVEN = "given:"
"""Marks, in a resolved spec, an object that was handed over in Python."""

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def nearest(name: Any, known: Iterable[str]) -> str:
    """A remedy that names the closest known name, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def is_import_path(name: Any) -> bool:
    """Whether it reads as "module:object"."""
    return isinstance(name, str) and _IMPORT_PATH.fullmatch(name) is not None


def import_object(path: str, field: str) -> Any:
    """The object at "module:name"; modules beside the person's working folder are found too."""
    module, name = path.split(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        remedy = f"{error}; start where {module}.py lies, or install it"
        raise InputError([Fault(field, "must name something that can be imported", path, remedy)]) from error


def must_be_given_again(field: str, name: Any) -> InputError:
    """For a resolved spec that names an object which only its author has."""
    rule = "was a Python object when this spec ran"
    return InputError([Fault(field, rule, name, "hand it to flexfl.simulate again")])
