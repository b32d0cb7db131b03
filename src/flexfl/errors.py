"""What a person reads when something is wrong: the field, the rule, the value, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with what was given."""

    field: str
    rule: str
    value: Any
    remedy: str = ""

    def __str__(self) -> str:
        shown = repr(self.value)
        is_path = isinstance(self.value, str) and self.value.startswith("/")  # whose end matters
        if len(shown) > _LONGEST_VALUE and not is_path:
            shown = shown[: _LONGEST_VALUE - 1] + "…"
        return f"{self.field} {self.rule}, got {shown}" + (f"; {self.remedy}" if self.remedy else "")


_WORDS = {
    "learning_rate": "lr eta rate step_size stepsize",
    "batch_size": "bs batch batchsize minibatch minibatch_size",
    "iterations": "epochs rounds steps iters max_iter max_iters num_iterations num_rounds t",
    "evaluate_every": "eval_every eval_interval",
    "seed": "random_seed random_state rng",
    "clients": "n_clients num_clients nodes users workers n",
    "compute": "computation computing cpu",
    "uplink": "up upload upstream",
    "downlink": "down download downstream",
    "tradeoff": "v",
    "initial_queue": "w",
    "send_ratio": "k k_r ratio topk",
    "compute_prob": "q p prob probability participation",
    "send_every": "m period local_steps",
    "device": "gpu cuda",
    "threads": "cores cpus num_threads n_threads num_workers",
    "dtype": "precision",
    "checkpoint_every": "checkpoint save_every",
    "kind": "type",
}
ALIASES = {word: name for name, words in _WORDS.items() for word in words.split()}
"""What other programs and the paper call a setting → its name here."""


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return a remedy that names the closest known name, or all of them.

    >>> nearest("onlin", ["online", "full"])
    'did you mean online?'
    >>> nearest("lr", ["learning_rate", "batch_size"])
    'did you mean learning_rate?'
    """
    known = list(known)
    if not known:
        return "remove it: there are none"
    if (other := ALIASES.get(str(name).lower())) in known:
        return f"did you mean {other}?"
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


class FlexFLError(Exception):
    """Every error that this package raises on purpose; the CLI prints it without a traceback."""


def in_words(error: Exception) -> str:
    """Return an error as text; other errors than our own with their type."""
    return str(error) if isinstance(error, FlexFLError) else f"{type(error).__name__}: {error}"


class InputError(FlexFLError, ValueError):
    """All faults of what was given, listed at once, before any work starts."""

    def __init__(self, faults: Iterable[Fault], where: str = "the input") -> None:
        self.faults = tuple(faults)
        self.where = where
        count = len(self.faults)
        title = f"{count} fault{'s' if count != 1 else ''} in {where}:"
        super().__init__("\n".join([title, *(f"  {fault}" for fault in self.faults)]))


_T = TypeVar("_T")


def within(field: str, work: Callable[[], _T]) -> _T:
    """Return what `work` returns; an `InputError` that it raises names its fields below `field`.

    A part that does not know where it stands in a spec names its own parameters, and who made it adds where.
    """
    try:
        return work()
    except InputError as error:
        raise InputError(
            [replace(fault, field=f"{field}.{fault.field}") for fault in error.faults], error.where
        ) from error


class FlexFLWarning(UserWarning):
    """A run does what was asked, but perhaps not what was meant: its notes say so, too."""


class RunDirectoryError(FlexFLError):
    """A run directory that cannot be used as asked; nothing in it was changed."""


class NonFiniteError(FlexFLError, FloatingPointError):
    """Training produced NaN or infinity; names who and when."""

    def __init__(self, who: str, what: str, iteration: int) -> None:
        self.who, self.what, self.iteration = who, what, iteration
        super().__init__(
            f"{what} of {who} became NaN or infinite in iteration {iteration}; "
            "lower train.learning_rate, or look at that client's data"
        )


class CostError(FlexFLError, ValueError):
    """A cost model gave a cost that no budget can be held against."""

    def __init__(self, field: str, who: str, value: float, iteration: int) -> None:
        super().__init__(
            f"{field} must be finite and ≥ 0, got {value} for {who} in iteration {iteration}; "
            "correct the cost model"
        )


class ScheduleError(FlexFLError, ValueError):
    """A schedule gave a factor that no learning rate can have."""

    def __init__(self, schedule: str, value: object, iteration: int) -> None:
        super().__init__(
            f"train.schedule ({schedule}) must give a finite factor > 0, got {value!r} in iteration "
            f"{iteration}; correct its method factor"
        )


class DecisionError(FlexFLError, ValueError):
    """A rule decided on something that cannot be done."""

    def __init__(self, rule: str, must: str, value: object, who: str, iteration: int) -> None:
        super().__init__(
            f"{rule} must decide on {must}, got {value} for {who} in iteration {iteration}; "
            "correct its method decide"
        )


class RuleError(FlexFLError, RuntimeError):
    """A method of a rule raised an exception."""


def rule_error(error: Exception, rule: str, method: str, role: str, iteration: int) -> RuleError:
    """Return what to raise for an exception in a rule; an error of ours is raised as it is."""
    if isinstance(error, FlexFLError):
        raise error
    reason = f"{type(error).__name__}: {str(error).strip()}"
    if type(error).__module__.startswith("numba"):
        reason = "it passed on something that is neither a number nor an array of numbers"
    if isinstance(error, ValueError) and "broadcast" in reason:
        reason += "; arrays must have one entry for each entity, the shape moment.shape"
    remedy = f"correct its method {method}"
    if method == "cut":
        remedy += ", which returns a number, or one for each entity"
    return RuleError(f"{rule} failed for {role} in iteration {iteration} ({reason}); {remedy}")
