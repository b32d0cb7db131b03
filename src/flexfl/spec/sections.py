"""The sections of a spec; frozen, unknown keys refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from flexfl.control.policy import KNOBS
from flexfl.spec import checks
from flexfl.spec.names import GIVEN, is_import_path, nearest
from flexfl.spec.partition import check_partition

DATASETS = ("fashion-mini", "fashion-mnist", "cifar10", "file")
NETWORKS = ("mlp", "cnn")
POLICIES = ("online", "randomised", "full", "periodic", "top-k", "fixed-prob")


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _one_of(known: tuple[str, ...], *, importable: bool = False) -> BeforeValidator:
    """One of the known names; also what a resolved spec says of an object handed over in Python."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or value.startswith(GIVEN) or value in known:
            return value
        if importable and is_import_path(value):
            return value
        rule = f"must be one of {', '.join(known)}" + (" or module:function" if importable else "")
        raise checks.fault(rule, value, nearest(value, known))

    return BeforeValidator(check)


def _weights(value: Any) -> Any:
    if isinstance(value, list) and value and all(checks.is_number(entry) for entry in value):
        return [float(entry) for entry in value]
    if value in ("equal", "samples"):
        return value
    rule = 'must be "equal", "samples" or a list of numbers'
    raise checks.fault(rule, value, "a list has one for each client, and sums to 1")


class DataSpec(Section):
    """name: a dataset that ships or is installed, or "file" with a path to an .npz.

    partition: a name, or a table with a kind and its options (`spec.partition`).
    """

    name: Annotated[str, _one_of(DATASETS)] = "fashion-mini"
    path: str | None = None
    partition: Annotated[str | dict[str, Any], BeforeValidator(check_partition)] = "one-class"
    clients: Annotated[int, checks.whole(1, "give the number of clients N")] = 100
    weights: Annotated[Any, BeforeValidator(_weights)] = "equal"
    augment: Literal["none", "crop-flip"] = "none"


class ModelSpec(Section):
    """name: a network that ships, or "module:function" of one's own; options go to it."""

    name: Annotated[str, _one_of(NETWORKS, importable=True)] = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)


class TrainSpec(Section):
    iterations: Annotated[int, checks.whole(1, "give the number of iterations T")] = 10_000
    batch_size: Annotated[int, checks.whole(1, "the paper has 16")] = 16
    learning_rate: checks.PositiveFloat = 0.1
    seed: Annotated[int, checks.whole(0, "any number below 2⁶⁴", most=2**64 - 1)] = 1
    evaluate_every: Annotated[int, checks.whole(1, "the paper evaluates every 50 iterations")] = 50


def _policy(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(GIVEN):
        return value
    for name in value.values() if isinstance(value, Mapping) else [value]:
        if name not in POLICIES:
            raise checks.fault(f"must be one of {', '.join(POLICIES)}", name, nearest(name, POLICIES))
    if isinstance(value, Mapping):
        for knob in value:
            if knob not in KNOBS:
                raise checks.fault("takes a table by compute, uplink and downlink", knob, "rename that key")
    return value


class ControlSpec(Section):
    """policy: one for all three knobs, or a table that takes each knob's rule from a policy."""

    policy: Annotated[str | dict[str, str], BeforeValidator(_policy)] = "online"
    tradeoff: checks.Tradeoff = 0.02
    initial_queue: checks.InitialQueue = 1.0
    floor: checks.Floor = Field(default_factory=lambda: {"compute": 0.0, "uplink": 0.001, "downlink": 0.001})
    send_ratio: checks.Ratio = None
    send_every: Annotated[int | None, checks.whole(1, "m: send in every m-th iteration")] = None
    compute_prob: checks.Prob = None

    def policy_of(self, knob: str) -> str:
        return self.policy.get(knob, "online") if isinstance(self.policy, dict) else self.policy


class RecordSpec(Section):
    """clients: also keep every metric by client (N numbers each, for every iteration)."""

    clients: bool = False


class EngineSpec(Section):
    device: Annotated[str, checks.device] = "cpu"
    kernels: Literal["auto", "numba", "torch"] = "auto"
    residuals: Literal["memory", "file"] = "memory"
    dtype: Literal["float32", "float64"] = "float32"
    threads: Annotated[int | None, checks.whole(1, "leave it out to use all cores")] = None
    checkpoint_every: Annotated[int, checks.whole(1, "iterations between two checkpoints")] = 500


class DeploySpec(Section):
    """What only a real network needs; a simulation does without.

    deadline  seconds that an iteration waits for answers; who has not answered counts as v = 0
    wait      seconds that the start waits for all clients; then training begins with those who are there
    latest    an update that comes later than so many iterations returns to its client's residual;
              without it every update is taken, however late
    ledger    clients also keep the sum of their steps, so that it can be checked that nothing was lost
    values    how messages carry numbers: exact, or rounded, and what rounding drops stays in the residual
    """

    deadline: checks.PositiveFloat = 30.0
    wait: checks.PositiveFloat = 60.0
    latest: Annotated[int | None, checks.whole(0, "leave it out to take every update")] = None
    values: Literal["exact", "float16", "bfloat16"] = "exact"
    ledger: bool = False
