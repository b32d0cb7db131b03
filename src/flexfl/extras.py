"""Packages that only some installs have, and how to get them.

The distribution is called flexfl-control: the name of the import belongs to another project on the public
package index. So every text that says how to install comes from here, and names a clone or a wheel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType

from flexfl import __version__
from flexfl.errors import FlexFLError

DISTRIBUTION = "flexfl-control"
WHEEL = f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"

EXTRA_OF = {
    "nvflare": "deploy",
    "psutil": "deploy",
    "pyarrow": "parquet",
    "pynvml": "nvml",
    "ray": "ray",
    "llvmlite": "",
    "matplotlib": "",
    "numba": "",
    "PIL": "",
    "plotly": "",
    "threadpoolctl": "",
}
"""Packages that an install may lack → the extra that brings them; "" for a plain install, which a lean
client does not have (docs/howto/deploy.md)."""


class MissingPackageError(FlexFLError, ModuleNotFoundError):
    """Something that was asked for needs a package that is not installed."""


def how_to_install(extra: str = "") -> str:
    """Return the commands that install this version with an extra, from a clone or from a wheel.

    >>> how_to_install("ray").partition(",")[0]
    "in a clone: pip install '.[ray]'"
    """
    suffix = f"[{extra}]" if extra else ""
    return f"in a clone: pip install '.{suffix}', or from a wheel: pip install '{WHEEL}{suffix}'"


@cache
def compiled_or_plain(compiled: str, plain: str) -> ModuleType:
    """Return the module that numba compiles, or the plain one where numba is not installed.

    They give the same bits. Modules are named, so that numba, which takes a second, is imported when needed.
    """
    try:
        return import_module(compiled)
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        return import_module(plain)


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Raise a missing package's ModuleNotFoundError again, as one that says how to install it.

    Args:
        purpose: what the imports inside are for, as the beginning of a sentence.

    Raises:
        MissingPackageError: a package of the table above is not installed.
    """
    try:
        yield
    except MissingPackageError:
        raise  # it says so already
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingPackageError(
            f"{purpose} needs {package}, which is not installed; {how_to_install(EXTRA_OF[package])}",
            name=package,
        ) from error
