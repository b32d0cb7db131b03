"""The sections of a spec; frozen, unknown keys refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, RootModel, model_validator

from flexfl.compress import COMPRESSORS
from flexfl.control import POLICIES, Policy
from flexfl.costs import COMPUTE_COSTS, MESSAGE_COSTS
from flexfl.costs.transfer import LINK_TIMES
from flexfl.data.catalogue import DATASETS
from flexfl.data.partition import FIELD, PARTITIONS
from flexfl.errors import Fault, InputError, nearest
from flexfl.learning_rate import AUTO, SCHEDULES
from flexfl.local import LOCAL_WORK
from flexfl.models import NETWORKS
from flexfl.parameters import KNOBS, Measure, Positive, Rule, Whole, above_zero, absolute, fault, is_number
from flexfl.registry import Family, for_pydantic, is_given, one_of
from flexfl.results.trackers import TRACKERS

FAMILIES: dict[str, tuple[Family, dict[str, Any]]] = {
    "data.partition": (PARTITIONS, {"kind": "one-class"}),
    "train.local": (LOCAL_WORK, {"kind": "gradient"}),
    "train.schedule": (SCHEDULES, {"kind": "constant"}),
    "control": (POLICIES, {"policy": "online"}),
    **{f"control.{knob}": (POLICIES, {}) for knob in KNOBS},
    "costs.compute": (COMPUTE_COSTS, {"kind": "uniform"}),
    "costs.uplink": (MESSAGE_COSTS, {"kind": "fading"}),
    "costs.downlink": (MESSAGE_COSTS, {"kind": "fading", "factor": 0.2}),
    **{f"compress.{role}": (COMPRESSORS, {"kind": "top-k"}) for role in ("uplink", "downlink")},
    "clock.compute": (COMPUTE_COSTS, {}),
    **{f"clock.{role}": (MESSAGE_COSTS, {}) for role in ("uplink", "downlink")},
}
"""Where a spec names a member of a family, and the one by default; and each [track.NAME] names a tracker."""


def members(sections: Mapping[str, BaseModel]) -> Iterator[tuple[str, Family, dict[str, Any]]]:
    """Yield the places where sections name a member of a family, with the family and the resolved table."""
    plain = {name: section.model_dump(exclude_none=True) for name, section in sections.items()}
    for field, (family, _) in FAMILIES.items():
        section, _, name = field.partition(".")
        table = plain.get(section, {})
        found: Any = table.get(name) if name else {key: table[key] for key in table if key not in KNOBS}
        if found:
            resolved = {family.key: found} if isinstance(found, str) else found
            by_rate = section == "clock" and resolved.get("kind") in LINK_TIMES.members
            yield field, LINK_TIMES if by_rate else family, resolved
    for name, table in plain.get("track", {}).items():
        yield f"track.{name}", TRACKERS, table
    for name, table in plain.get("budget", {}).items():
        if isinstance(table, dict) and name not in KNOBS:  # a joint budget, which may have costs of its own
            for knob in KNOBS:
                if isinstance(table.get(knob), dict):
                    family = COMPUTE_COSTS if knob == "compute" else MESSAGE_COSTS
                    yield f"budget.{name}.{knob}", family, table[knob]


def _member(field: str) -> BeforeValidator:
    return FAMILIES[field][0].field(field, FAMILIES[field][1])


class Section(BaseModel):
    """What sections have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)


def _weights(value: Any) -> Any:
    if isinstance(value, list) and value and all(is_number(entry) for entry in value):
        return [float(entry) for entry in value]
    if value in ("equal", "samples"):
        return value
    rule = 'must be "equal", "samples" or a list of numbers'
    raise fault(rule, value, "a list has one for each client, and sums to 1")


def _partition(value: Any) -> Any:
    """Check a partition; a name stays a name."""
    resolved = for_pydantic(FIELD, lambda: PARTITIONS.resolve(value, FIELD))
    if isinstance(value, str):
        return value
    if is_given(resolved["kind"]):
        raise fault("must have a kind that can be named", value, nearest("", PARTITIONS.members))
    return resolved


def _device(value: Any) -> str:
    """Check a device by torch's name; whether it is there is seen when torch is."""
    if not isinstance(value, str) or not re.fullmatch(r"cpu|mps|cuda(:\d+)?", value):
        raise fault("must be one of cpu, cuda, cuda:N, mps", value, "for example cuda:0")
    return value


class DataSpec(Section):
    """The samples, and which client has which.

    Attributes:
        name: a dataset that ships or was fetched, or "file" for an .npz in `path`.
        path: the .npz file, or a folder with the dataset's own files; relative to the file of the spec, in
            --set and in Python to the working folder.
        partition: who holds what: a name, or a table with a kind and its options.
        clients: N.
        weights: of the clients in the sum: "equal", "samples" (by their number), or a list that sums to 1.
        augment: how images are varied: "crop-flip" as the paper does for CIFAR-10.
    """

    name: Annotated[str, one_of(DATASETS)] = "fashion-mini"
    path: Annotated[str | None, AfterValidator(absolute)] = None
    partition: Annotated[str | dict[str, Any], BeforeValidator(_partition)] = "one-class"
    clients: Annotated[int, Whole(1, "give the number of clients N")] = 100
    weights: Annotated[Any, BeforeValidator(_weights)] = "equal"
    augment: Literal["none", "crop-flip"] = "none"


class ModelSpec(Section):
    """name: a network that ships, or "module:function" of one's own.

    options: what it is called with.
    """

    name: Annotated[str, one_of(NETWORKS, importable=True)] = "mlp"
    options: dict[str, Any] = Field(default_factory=dict)


_DURATION = Measure(
    "must be > 0 and finite", above_zero, 'for example "30 days"', optional=True, unit="second"
)


_RATE = Rule("must be > 0 and finite", above_zero, 'give a positive number, or "auto"')


def _learning_rate(value: Any) -> Any:
    return value if value == AUTO and isinstance(value, str) else _RATE.check(value)


class TrainSpec(Section):
    """How long and how fast it learns.

    Attributes:
        iterations: T.
        duration: seconds by the clock after which the run ends, if T iterations have not ended it.
        batch_size: samples in a minibatch.
        learning_rate: η; "auto" follows the message rate: min(0.1, 0.85 · messages per client and iteration).
        schedule: how η changes over the T iterations: a name, or a table with a kind and its options.
        average: also form, evaluate and keep the averaged model x̄ ← x̄ + 10/(t+10)·(x − x̄).
        local: what a client computes in an iteration. A computation of H gradients uses H minibatches and
            costs H times what one gradient costs.
        seed: of everything that is drawn.
        evaluate_every: iterations between two evaluations on the training and test set.
    """

    iterations: Annotated[int, Whole(1, "give the number of iterations T")] = 10_000
    duration: Annotated[float | None, _DURATION] = None
    batch_size: Annotated[int, Whole(1, "the paper has 16")] = 16
    learning_rate: Annotated[Any, BeforeValidator(_learning_rate)] = 0.1
    schedule: Annotated[dict[str, Any], _member("train.schedule")] = {}
    average: bool = False
    local: Annotated[dict[str, Any], _member("train.local")] = {}
    seed: Annotated[int, Whole(0, "any number below 2⁶⁴", most=2**64 - 1)] = 1
    evaluate_every: Annotated[int, Whole(1, "the paper evaluates every 50 iterations")] = 50


class ControlSpec(BaseModel):
    """A policy with its own parameters; a table below compute, uplink or downlink is for that knob only."""

    model_config = ConfigDict(extra="allow", frozen=True)

    policy: str = "online"
    compute: dict[str, Any] | None = None
    uplink: dict[str, Any] | None = None
    downlink: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        return for_pydantic("control", lambda: _control(given))


_INSTEAD = {
    "compute": "write full for computing in every iteration, or fixed-prob",
    "uplink": "write full for sending everything in every iteration, or top-k",
    "downlink": "write full for sending everything in every iteration, or top-k",
}


def decides(policy: str, knob: str) -> bool:
    """Return whether a policy that ships has a rule of its own for that knob; others may."""
    return knob in getattr(POLICIES.members.get(policy), "decides", KNOBS)


def _control(given: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(policy := given.get("policy"), Mapping):
        remedy = 'write control.uplink = { policy = "…" } for the policy of one knob'
        raise InputError([Fault("control.policy", "must be the name of one policy", policy, remedy)])
    for knob in KNOBS:
        table = given.get(knob)
        policy = table.get("policy") if isinstance(table, Mapping) else table
        if isinstance(policy, Policy):
            rule = "must name a policy: objects are for all knobs, control={'policy': …}"
            remedy = 'write "module:Class", or give an object that takes other rules for other knobs'
            raise InputError([Fault(f"control.{knob}.policy", rule, type(policy).__name__, remedy)])
    whole = {name: value for name, value in given.items() if name not in KNOBS}
    by_knob = {f"control.{knob}": given[knob] for knob in KNOBS if given.get(knob) is not None}
    found = POLICIES.resolve_all({"control": whole} | by_knob, {"control": FAMILIES["control"][1]})
    if faults := [
        Fault(
            f"control.{knob}.policy", f"must decide for {knob}, which {name} does not", name, _INSTEAD[knob]
        )
        for knob in KNOBS
        if f"control.{knob}" in found
        for name in [found[f"control.{knob}"]["policy"]]
        if not decides(name, knob)
    ]:
        raise InputError(faults)
    return found.pop("control") | {field.removeprefix("control."): table for field, table in found.items()}


class CostsSpec(Section):
    """What computing and sending cost: a kind and its parameters for each; by default as in the paper."""

    compute: Annotated[dict[str, Any], _member("costs.compute")] = {}
    uplink: Annotated[dict[str, Any], _member("costs.uplink")] = {}
    downlink: Annotated[dict[str, Any], _member("costs.downlink")] = {}


class CompressSpec(Section):
    """What is sent of a vector: a compressor for each direction."""

    uplink: Annotated[dict[str, Any], _member("compress.uplink")] = {}
    downlink: Annotated[dict[str, Any], _member("compress.downlink")] = {}


class TrackSpec(RootModel[dict[str, Annotated[dict[str, Any], TRACKERS.field("track")]]]):
    """Trackers of the run, by a name that the person chooses."""

    model_config = ConfigDict(frozen=True)


class RecordSpec(Section):
    """clients: also keep every metric by client (N numbers each, for every iteration)."""

    clients: bool = False


class EngineSpec(Section):
    """How a simulation is computed.

    Attributes:
        device: by torch's name: cpu, cuda, cuda:N or mps.
        kernels: of the residuals: numba's on the host, torch's on any device.
        gradients: how the clients' gradients are taken; auto takes one pass where the network allows it.
        residuals: where the N × D residuals lie, and what local work remembers.
        dtype: of parameters and residuals.
        threads: cores to use; all if left out.
        checkpoint_every: iterations between two checkpoints.
    """

    device: Annotated[str, BeforeValidator(_device)] = "cpu"
    kernels: Literal["auto", "numba", "torch"] = "auto"
    gradients: Literal["auto", "one-pass", "vmap", "loop"] = "auto"
    residuals: Literal["memory", "file"] = "memory"
    dtype: Literal["float32", "float64"] = "float32"
    threads: Annotated[int | None, Whole(1, "leave it out to use all cores", optional=True)] = None
    checkpoint_every: Annotated[int, Whole(1, "iterations between two checkpoints")] = 500


class DeploySpec(Section):
    """What only a real network needs; a simulation does without.

    Attributes:
        deadline: seconds that an iteration waits for answers; who has not answered counts as v = 0.
        wait: seconds that the start waits for all clients; then training begins with those who are there.
        latest: an update that comes later than so many iterations returns to its client's residual; without
            it every update is taken, however late.
        ledger: clients also keep the sum of their steps, so that it can be checked that nothing was lost.
    """

    deadline: Positive = 30.0
    wait: Positive = 60.0
    latest: Annotated[int | None, Whole(0, "leave it out to take every update", optional=True)] = None
    ledger: bool = False
