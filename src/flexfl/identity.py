"""What decides a run besides its spec: the parameters and the code of objects that a person passes in.

`identity_of` lists an object as text by dotted names. Two runs are the same (one resumes the other, or they
are two seeds of one group) only if these lists are equal. Torch is not imported: modules and tensors are
recognised by what they offer.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import logging
import random
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

Identity = dict[str, str]

_LONGEST = 80
"""A longer text is a digest."""
_MOST_READ = 10_000
"""So many entries of one object are looked at."""
_MOST = 300
"""More entries of one object are a digest, too."""
_LIBRARIES = {"flexfl", "torch", "numpy", "builtins"} | set(sys.stdlib_module_names) - {"__main__"}
"""Packages whose code is known by their name."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
CODE = "__code__"
"""What the code of an object is listed as."""


def identity_of(thing: object, name: str) -> Identity:
    """Return what an object is, by dotted names below `name`.

    - a dataclass: its class, its code and its fields; another object: its class, its code and its attributes;
    - a function: its name, its code and what it encloses; where it is a person's own, so are the functions
      and constants of its module that it uses;
    - a torch module: the class and settings of each part; numbers that are not trained.

    >>> identity_of({"rate": 0.5, "steps": [1, 2]}, "policy")
    {'policy.rate': '0.5', 'policy.steps': '[1, 2]'}
    """
    found = dict(islice(_entries(thing, name, ()), _MOST_READ))
    if len(found) > _MOST:
        return {name: f"{_class_name(thing)}, {len(found)} entries, {_digest(found)}"}
    return found


def objects_of(things: Mapping[str, object], given: Collection[str] = ()) -> Identity:
    """Return the identity of those things that a spec does not describe, and of the files that they read.

    Args:
        things: the objects of a run, by name.
        given: the names of those that were passed in Python; of the others, those of one's own code count.
    """
    found: Identity = {}
    for name, thing in things.items():
        found |= identity_of(thing, name) if name in given or is_own(thing) else {}
        found |= {f"{name}.contents": str(read)} if (read := getattr(thing, "contents", "")) else {}
    return found


def is_own(thing: object) -> bool:
    """Return whether the code of an object's class, or of a function, is a person's own."""
    home = thing if isinstance(thing, FunctionType | BuiltinFunctionType | type) else type(thing)
    return not _is_library((getattr(home, "__module__", None) or "").partition(".")[0])


@functools.cache
def _is_library(package: str) -> bool:
    """Return whether a package was installed, and is known by its name; one edited in place was not."""
    if package in _LIBRARIES:
        return True
    where = getattr(sys.modules.get(package), "__file__", None) or ""
    return any(folder in Path(where).parts for folder in ("site-packages", "dist-packages"))


def _entries(thing: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if id(thing) in above:
        yield name, "itself"
        return
    above = (*above, id(thing))
    if _is_plain(thing) or (isinstance(thing, list | tuple) and all(map(_is_plain, thing))):
        yield name, _short(repr(thing))
    elif isinstance(thing, np.ndarray | np.generic) or _is_tensor(thing):
        yield name, _array(thing)
    elif isinstance(thing, Mapping):
        for key in thing:
            yield from _entries(thing[key], f"{name}.{key}", above)
    elif isinstance(thing, list | tuple):
        for place, item in enumerate(thing):
            yield from _entries(item, f"{name}.{place}", above)
    elif isinstance(thing, set | frozenset):
        yield name, _short(repr(sorted(repr(dict(_entries(item, "", above))) for item in thing)))
    elif (text := _in_words(thing)) is not None:
        yield name, _short(text)
    elif isinstance(thing, functools.partial):
        given = {"function": thing.func, "arguments": thing.args, "keywords": thing.keywords}
        yield from _entries(given, name, above)
    elif isinstance(thing, MethodType):
        yield from _entries(thing.__func__, name, above)
        yield from _entries(thing.__self__, f"{name}.self", above)
    elif isinstance(wrapped := getattr(thing, "__wrapped__", None), FunctionType):  # lru_cache and the like
        yield from _function(wrapped, name, above)
    elif isinstance(thing, FunctionType | BuiltinFunctionType | type):
        yield from _function(thing, name, above)
    elif isinstance(thing, ModuleType):
        yield name, thing.__name__
    elif callable(getattr(thing, "named_modules", None)):
        yield from _network(thing, name, above)
    else:
        yield from _object(thing, name, above)


def _object(thing: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    held = _attributes(thing)
    yield name, _class_name(thing) if held is not None else _short(_ADDRESS.sub("", repr(thing)))
    if is_own(thing):
        yield f"{name}.{CODE}", _digest(_code_of_class(type(thing)))
    for key, value in (held or {}).items():
        yield from _entries(value, f"{name}.{key}", above)


def _attributes(thing: Any) -> dict[str, Any] | None:
    """Return what an object holds: the fields of a dataclass, or all; None if it does not say."""
    parts = [item for each in type(thing).__mro__ for item in vars(each).items()]
    caches = {name for name, part in parts if isinstance(part, functools.cached_property)}
    if is_dataclass(thing):
        declared = {field.name: getattr(thing, field.name, None) for field in fields(thing)}
        more = getattr(thing, "__dict__", {})  # a dataclass may have slots instead
        return declared | {name: part for name, part in more.items() if name not in caches}
    slots = [slot for each in type(thing).__mro__ for slot in getattr(each, "__slots__", ())]
    held = {slot: getattr(thing, slot) for slot in slots if hasattr(thing, slot)}
    if hasattr(thing, "__dict__"):
        held |= {name: part for name, part in vars(thing).items() if name not in caches}
        return held
    return held or None


def _function(thing: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    yield name, f"{thing.__module__}.{thing.__qualname__}"
    if isinstance(thing, type):
        if is_own(thing):
            yield f"{name}.{CODE}", _digest(_code_of_class(thing))
        return
    if isinstance(thing, FunctionType):
        if is_own(thing):
            yield f"{name}.{CODE}", _digest(_code_of(thing, set()))
        yield from _entries(thing.__kwdefaults__ or {}, name, above)
        for place, value in enumerate(thing.__defaults__ or ()):
            yield from _entries(value, f"{name}.default{place}", above)
        enclosed = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        for key, cell in enclosed:
            try:
                yield from _entries(cell.cell_contents, f"{name}.{key}", above)
            except ValueError:  # an empty cell: the name is not bound yet
                yield f"{name}.{key}", "nothing"


def _network(module: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for path, part in module.named_modules():
        field = f"{name}.{path}" if path else name
        held = {key: value for key, value in sorted(vars(part).items()) if _counts(part, key, value)}
        settings = {key: value for key, value in held.items() if _is_plain(value)}
        shown = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        yield field, _short(f"{_class_name(part)}({shown})") + ("" if part.training else ", eval")
        if is_own(part):
            yield f"{field}.{CODE}", _digest(_code_of_class(type(part)))
        for key, value in held.items():
            if not _is_plain(value):
                yield from _entries(value, f"{field}.{key}", above)
        for kind in ("_forward_pre_hooks", "_forward_hooks"):
            for place, hook in enumerate(getattr(part, kind, {}).values()):
                yield from _entries(hook, f"{field}.{kind.strip('_')}.{place}", above)
    for key, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield f"{name}.{key}", f"frozen {_array(parameter)}"
    for key, buffer in module.named_buffers():
        yield f"{name}.{key}", _array(buffer)


def _counts(part: Any, key: str, value: Any) -> bool:
    """Return whether an attribute of a module says what it is: no part, no parameter, nothing of torch's."""
    private = key.startswith("_") and (not is_own(part) or key in _torch_names())
    values = value if isinstance(value, list | tuple) else [value]
    trained = any(_is_tensor(each) and each.requires_grad for each in values)
    return key != "training" and not private and not trained and not hasattr(value, "named_modules")


@functools.cache
def _torch_names() -> frozenset[str]:
    """Return the attributes that every torch module has."""
    return frozenset(vars(sys.modules["torch"].nn.Module()))


# Code ----------------------------------------------------------------------------------------------


def _code_of_class(kind: type) -> list[Any]:
    """Return the code of a class and of those of its bases that are a person's own."""
    seen: set[int] = set()
    return [_members(each, seen) for each in kind.__mro__ if is_own(each)]


def _members(kind: type, seen: set[int]) -> list[Any]:
    found: list[Any] = [kind.__qualname__]
    for name, value in sorted(vars(kind).items()):
        value = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType):
            if value.__code__.co_filename != "<string>":  # not made by dataclass, whose fields are compared
                found.append([name, _code_of(value, seen)])
        elif not name.startswith("__") and (used := _used(value, seen)) is not None:
            found.append([name, used])
    return found


def _used(value: Any, seen: set[int]) -> Any:
    """Return what a name stands for that code uses: own code, and values; None for what libraries have."""
    value = getattr(value, "__wrapped__", value)
    if isinstance(value, FunctionType):
        return _code_of(value, seen) if is_own(value) else None
    if isinstance(value, type):
        if not is_own(value) or id(value) in seen:
            return None
        seen.add(id(value))
        return _members(value, seen)
    is_data = isinstance(value, list | tuple | dict | set | frozenset | np.ndarray) or _is_plain(value)
    if not is_data and not _is_tensor(value) and (isinstance(value, ModuleType) or not is_own(value)):
        return None
    if id(value) in _unfolding:  # an object whose code uses the object itself
        return "above"
    _unfolding.add(id(value))
    try:
        return dict(islice(_entries(value, "", ()), _MOST_READ))
    finally:
        _unfolding.discard(id(value))


_unfolding: set[int] = set()
"""The values that code uses and that are being listed."""


def _code_of(function: Callable[..., Any], seen: set[int]) -> Any:
    """Return the code of a function, with the functions, classes and constants of its module that it uses."""
    assert isinstance(function, FunctionType)
    if id(function) in seen:
        return "above"
    seen.add(id(function))
    used: list[Any] = []
    names = sorted(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType) and not _is_library(value.__name__.partition(".")[0]):
            parts = {other: vars(value).get(other) for other in names}
            used += [
                [f"{name}.{other}", _used(part, seen)] for other, part in parts.items() if part is not None
            ]
        elif value is not None:
            used.append([name, _used(value, seen)])
    return [_source(function), used]


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _source(function: FunctionType) -> str:
    """Return the statements of a function, without comments, docstrings and layout."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return _bytecode(function.__code__)
    if function.__name__ == "<lambda>":  # whose line may hold anything else
        return _bytecode(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _bytecode(code: CodeType) -> str:
    sets = {const: sorted(map(repr, const)) for const in code.co_consts if isinstance(const, frozenset)}
    consts = [_bytecode(const) if isinstance(const, CodeType) else const for const in code.co_consts]
    consts = [repr(sets[const] if isinstance(const, frozenset) else const) for const in consts]
    return repr((code.co_code.hex(), code.co_names, consts))


# Values --------------------------------------------------------------------------------------------


def _is_plain(thing: object) -> bool:
    return thing is None or isinstance(thing, bool | int | float | complex | str | bytes)


def _is_tensor(thing: Any) -> bool:
    return all(hasattr(thing, name) for name in ("detach", "dtype", "shape", "numpy"))


def _in_words(thing: Any) -> str | None:
    """Return things that say themselves what they are, the same in every process; None for others."""
    if isinstance(thing, PurePath):
        return str(thing)
    if isinstance(thing, logging.Logger):
        return f"logger {thing.name}"
    if isinstance(thing, np.random.Generator):
        return repr(thing.bit_generator.state)
    if isinstance(thing, np.random.RandomState | random.Random):
        state = thing.getstate() if isinstance(thing, random.Random) else thing.get_state()
        return _digest([str(part) for part in state])
    if _class_name(thing) == "torch._C.Generator":
        return _array(thing.get_state())
    return None


def _array(thing: Any) -> str:
    """Return kind, shape and digest of an array or tensor; the value of a single number."""
    if _is_tensor(thing):
        thing = thing.detach().cpu()
        thing = (thing.float() if str(thing.dtype) == "torch.bfloat16" else thing).numpy()
    if not thing.ndim:
        return repr(thing.item())
    if thing.dtype.hasobject:
        return _digest(list(_entries(thing.ravel().tolist(), str(thing.shape), ())))
    content = hashlib.blake2b(np.ascontiguousarray(thing).tobytes(), digest_size=6).hexdigest()
    return f"{thing.dtype} {tuple(thing.shape)} {content}"


def _class_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 16]}… {_digest(text)}"


def _digest(content: object) -> str:
    return hashlib.blake2b(repr(content).encode(), digest_size=6).hexdigest()
