"""How samples are spread over clients, as a spec says it: a name, or a table with a kind and options.

Option names follow flwr-datasets where it has the same partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from flexfl.errors import Fault, InputError
from flexfl.spec import checks
from flexfl.spec.names import GIVEN, nearest

FIELD = "data.partition"
SIZES = ("linear", "square", "exponential")


@dataclass(frozen=True)
class Option:
    """One option of a partitioner.

    check    the value as it is kept, or an error by `checks.fault`
    default  None leaves it to the partitioner, which knows the data
    example  given for an option that has no default and must be set
    """

    check: Callable[[Any], Any]
    default: Any = None
    example: str = ""


def _sizes(value: Any) -> Any:
    if isinstance(value, str) and value in SIZES:
        return value
    if not isinstance(value, list | tuple) or not value:
        remedy = nearest(value, SIZES) if isinstance(value, str) else "a list has one for each client"
        raise checks.fault(f"must be one of {', '.join(SIZES)}, or a list of numbers", value, remedy)
    # Nothing that could overflow when it is summed or multiplied by a number of samples.
    return checks.check_numbers(
        value, "must be > 0 and at most 1e15", lambda v: 0 < v <= 1e15, "give each client's proportion"
    )


PARTITIONS: dict[str, dict[str, Option]] = {
    "one-class": {},
    "iid": {},
    "dirichlet": {
        "alpha": Option(
            partial(
                checks.check_number,
                rule="must be > 0 and at most 1e9",
                holds=lambda v: 0 < v <= 1e9,
                remedy="the smaller, the more uneven: 0.1 to 1, say",
            ),
            example="alpha = 0.3",
        ),
        "min_partition_size": Option(
            partial(checks.check_whole, least=1, remedy="leave it out for 10, or less where data are few")
        ),
        "self_balancing": Option(partial(checks.check_bool, remedy="true evens out sizes"), False),
    },
    "shards": {
        "num_classes_per_partition": Option(
            partial(checks.check_whole, least=1, remedy="the number of classes at each client"), 2
        ),
    },
    "similarity": {
        "similarity": Option(
            partial(
                checks.check_number,
                rule="must be in [0, 1]",
                holds=lambda v: 0 <= v <= 1,
                remedy="0 sorts by label, 1 is iid",
            ),
            example="similarity = 0.1",
        ),
    },
    "quantity": {"sizes": Option(_sizes, "linear")},
}


def resolve_partition(value: Any) -> str | dict[str, Any]:
    """Check kind and options and fill in the defaults, or list every fault; a name stays a name."""
    if isinstance(value, str):
        _options(value, {}, field=FIELD)
        return value
    if not isinstance(value, Mapping):
        rule = f"must be one of {', '.join(PARTITIONS)}, or a table with a kind"
        raise InputError([Fault(FIELD, rule, value, 'for example { kind = "dirichlet", alpha = 0.3 }')])
    if "kind" not in value:
        remedy = f"add kind = …, one of {', '.join(PARTITIONS)}"
        raise InputError([Fault(f"{FIELD}.kind", "is needed", None, remedy)])
    given = {name: entry for name, entry in value.items() if name != "kind"}
    return {"kind": value["kind"], **_options(value["kind"], given, field=f"{FIELD}.kind")}


def kind_and_options(value: Any) -> tuple[str, dict[str, Any]]:
    """The partitioner's name and its keyword arguments; refuses what `resolve_partition` refuses."""
    resolved = resolve_partition(value)
    if isinstance(resolved, str):
        return resolved, _options(resolved, {}, field=FIELD)
    return resolved.pop("kind"), resolved


def _options(kind: Any, given: Mapping[str, Any], *, field: str) -> dict[str, Any]:
    if not isinstance(kind, str) or kind not in PARTITIONS:
        rule = f"must be one of {', '.join(PARTITIONS)}"
        raise InputError([Fault(field, rule, kind, nearest(kind, PARTITIONS))])
    known = PARTITIONS[kind]
    faults = [
        Fault(f"{FIELD}.{name}", f"is not an option of {kind}", entry, _remedy(name, known))
        for name, entry in given.items()
        if name not in known
    ]
    resolved: dict[str, Any] = {}
    for name, option in known.items():
        if name not in given:
            if option.example:
                remedy = f'for example partition = {{ kind = "{kind}", {option.example} }}'
                faults.append(Fault(f"{FIELD}.{name}", f"is needed by {kind}", None, remedy))
            elif option.default is not None:
                resolved[name] = option.default
            continue
        entry = given[name]
        try:
            plain = entry.tolist() if isinstance(entry, np.ndarray | np.generic) else entry
            resolved[name] = option.check(plain)
        except PydanticCustomError as error:
            told = error.context or {}
            faults.append(Fault(f"{FIELD}.{name}", told["rule"], told["value"], told["remedy"]))
    if faults:
        raise InputError(faults, "the partition")
    return resolved


def _remedy(name: str, known: Mapping[str, Option]) -> str:
    return nearest(name, known) if known else "remove it: there are none"


def check_partition(value: Any) -> Any:
    """For a field of a spec; also takes what a resolved spec says of data handed over in Python."""
    if isinstance(value, str) and value.startswith(GIVEN):
        return value
    try:
        return resolve_partition(value)
    except InputError as error:
        # One line for each, below this field, so that a spec lists them with its other faults.
        lines = [
            InitErrorDetails(
                type=checks.fault(fault.rule, fault.value, fault.remedy),
                loc=tuple(fault.field.removeprefix(FIELD).split(".")[1:]),
                input=fault.value,
            )
            for fault in error.faults
        ]
        raise ValidationError.from_exception_data(FIELD, lines) from error
