"""A whole run: from a spec to a trained model and a run directory."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from flexfl.control.policy import KNOBS, Policy
from flexfl.costs import CostModel
from flexfl.data.augment import crop_flip
from flexfl.data.datasets import load_federated
from flexfl.data.federated import Federated
from flexfl.errors import Fault, FlexFLError, InputError, NonFiniteError, RunDirectoryError
from flexfl.evaluate import Evaluator
from flexfl.mapped import mapped_zeros
from flexfl.models.flat import FlatModel
from flexfl.models.generator import own_generator
from flexfl.prepare import prepare
from flexfl.results.directory import RunDirectory
from flexfl.results.partition import Partition
from flexfl.results.progress import OnProgress, Progress
from flexfl.results.run import Run, mean_budget
from flexfl.sim.engine import Engine, Problem
from flexfl.sim.gradients import Loss
from flexfl.sim.process import stop_signals, threads, usable_threads
from flexfl.spec.build import build_costs, build_policy, check_costs, check_queues
from flexfl.spec.load import load_spec, to_toml
from flexfl.spec.names import GIVEN, must_be_given_again
from flexfl.spec.own import for_simulation
from flexfl.spec.schema import Spec, parse
from flexfl.streams import Streams

_COMMIT_SECONDS = 2.0


class RunInterruptedError(FlexFLError):
    """The run was asked to stop; it can be resumed from where it is."""


@dataclass(frozen=True)
class Result:
    """A finished run."""

    model: nn.Module
    params: NDArray[Any]
    run: Run
    summary: dict[str, Any]


def simulate(
    spec: Spec | str | Path | None = None,
    *,
    model: nn.Module | Mapping[str, Any] | None = None,
    data: Federated | Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    **sections: Mapping[str, Any],
) -> Result:
    """Train under budgets.

    spec      the name of a shipped spec, a TOML file or a `Spec`; by default the paper's settings
    sections  as keywords, over what the spec says: budget={"uplink": 0.01}, train={"iterations": 500}, …
    model     any nn.Module, which is trained itself; or the section of a spec; the spec's network if left out
    data      a `Federated`, or the section of a spec; the spec's dataset if left out
    loss      outputs and labels of a minibatch → mean loss; by default cross-entropy for class
              labels and mean squared error for numbers
    costs=…   may hold objects that follow `costs.CostModel`; control={"policy": …} a `control.Policy`
    out       the run directory; a temporary one if left out
    resume    go on with the run in `out`
    """
    if resume and out is None:
        raise InputError([Fault("resume", "needs the run directory", None, "give out=…")], "the call")
    if isinstance(model, Mapping):
        sections, model = sections | {"model": model}, None
    if isinstance(data, Mapping):
        sections, data = sections | {"data": data}, None
    _refuse_other_kinds(spec, model, data, sections)
    resolved, objects = _resolve(spec, sections, model, data)
    # Stored with the run: another number of threads would round sums in another order.
    count = usable_threads(resolved.engine.threads)
    engine = resolved.engine.model_copy(update={"threads": count})
    resolved = resolved.model_copy(update={"engine": engine})
    with threads(count), own_generator():
        problem = _prepare(resolved, model, data, loss, objects)
        if out is not None:
            return _train(resolved, problem, Path(out), resume, on_progress)
        with tempfile.TemporaryDirectory(prefix="flexfl-") as folder:
            # Nothing stays of a run without `out`, so nothing is said of files either.
            result = _train(resolved, problem, Path(folder) / "run", False, on_progress)
            # Read before the folder goes.
            _ = result.run.spec, result.run.summary, result.run.clients, result.run.partition
            return result


def _refuse_other_kinds(spec: object, model: object, data: object, sections: Mapping[str, object]) -> None:
    faults = []
    if not isinstance(spec, Spec | str | Path | None):
        remedy = 'give sections as keywords: train={"iterations": 500}'
        faults.append(Fault("spec", "must be a name, a path or a Spec", spec, remedy))
    if not isinstance(model, nn.Module | None):
        remedy = 'give the module itself, or {"name": "cnn"}'
        faults.append(Fault("model", "must be an nn.Module, or a table of settings", model, remedy))
    if not isinstance(data, Federated | None):
        remedy = "make one with Federated.split or Federated.of_clients"
        faults.append(Fault("data", "must be a Federated, or a table of settings", data, remedy))
    for name, table in sections.items():
        if not isinstance(table, Mapping):
            remedy = f'for example {name}={{"setting": 1}}'
            faults.append(Fault(name, "must be a table of settings", table, remedy))
    if faults:
        raise InputError(faults, "the call")


@dataclass(frozen=True)
class _Objects:
    """What was handed over in Python instead of being named in the spec."""

    costs: dict[str, CostModel]
    policy: Policy | None


def _resolve(
    spec: Spec | str | Path | None,
    sections: Mapping[str, Mapping[str, Any]],
    model: nn.Module | None,
    data: Federated | None,
) -> tuple[Spec, _Objects]:
    """The resolved spec, in which objects handed over in Python are named, and these objects."""
    base = load_spec(str(spec)) if isinstance(spec, str | Path) else spec
    given: dict[str, Any] = {} if base is None else base.plain()
    for name, table in sections.items():
        plain = _plain(table)
        known = isinstance(given.get(name), dict) and isinstance(plain, dict)
        given[name] = {**given[name], **plain} if known else plain
    costs: dict[str, CostModel] = {}
    for knob, cost in list(dict(given.get("costs", {})).items()):
        if isinstance(cost, CostModel):
            costs[knob] = cost
            # Without its address in memory, so that another process can resume with an equal one.
            told = re.sub(r" at 0x[0-9a-f]+", "", repr(cost))
            given["costs"][knob] = {"kind": GIVEN + _name_of(cost), "repr": told}
    policy = dict(given.get("control", {})).get("policy")
    if isinstance(policy, Policy):
        rules = (policy.compute, policy.uplink, policy.downlink)
        given["control"]["policy"] = GIVEN + ", ".join(type(rule).__name__ for rule in rules)
    if model is not None:
        given["model"] = {"name": GIVEN + _name_of(model)}
    if data is not None:
        own = {"name": f"{GIVEN}Federated", "clients": data.clients, "partition": f"{GIVEN}parts"}
        given["data"] = {**given.get("data", {}), **own}
    # A copy: queues change while it decides, and the next run starts with them as they were given.
    objects = _Objects(costs, copy.deepcopy(policy) if isinstance(policy, Policy) else None)
    return parse(given, where="the settings"), objects


def _plain(value: Any) -> Any:
    """NumPy values, tuples and ranges as TOML knows them."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple | range) else value


def _name_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _prepare(
    spec: Spec,
    model: nn.Module | None,
    data: Federated | None,
    loss: Loss | None,
    objects: _Objects,
) -> Problem:
    """Build everything and check what the spec alone cannot tell, before any work starts."""
    for_simulation(spec)
    if data is None:
        if spec.data.name.startswith(GIVEN):
            raise must_be_given_again("data.name", spec.data.name)
        data = load_federated(spec.data, seed=spec.train.seed)
    flat, chosen = prepare(spec, data, model=model, loss=loss)
    costs = build_costs(spec, objects.costs)
    check_costs(costs, clients=data.clients, dim=flat.dim)
    if objects.policy is not None:
        check_queues(objects.policy, clients=data.clients)
    return problem_of(spec, flat, data, chosen, costs, policy=objects.policy)


def problem_of(
    spec: Spec,
    model: FlatModel,
    data: Federated,
    loss: Loss,
    costs: Mapping[str, CostModel],
    *,
    policy: Policy | None = None,
    streams: Streams | None = None,
) -> Problem:
    """What `spec` says of a run on these; policy and streams are the spec's if left out."""
    return Problem(
        model=model,
        loss=loss,
        data=data,
        policy=policy or build_policy(spec, costs),
        costs=costs,
        weights=data.weights(spec.data.weights),
        learning_rate=spec.train.learning_rate,
        batch_size=spec.train.batch_size,
        streams=streams or Streams(spec.train.seed),
        augment=crop_flip if spec.data.augment == "crop-flip" else None,
    )


def _train(spec: Spec, problem: Problem, out: Path, resume: bool, on_progress: OnProgress | None) -> Result:
    """The loop: evaluate, step, record, checkpoint."""
    # Before the directory: what fails here leaves nothing behind.
    engine = Engine(problem, kernels=_kernels(spec), residuals=_residuals(spec, problem, out))
    data = problem.data
    identity = {"data": data.fingerprint(), "model": problem.model.fingerprint()}
    partition = Partition.of(data.parts, np.asarray(data.train_y), data.classes)
    opened = RunDirectory(out, to_toml(spec), identity, resume=resume, partition=partition)
    with opened as directory, stop_signals() as stop:
        evaluate = Evaluator(problem.model, problem.loss, problem.data)
        clients = spec.data.clients
        budgets = {knob: mean_budget(getattr(spec.budget, knob), clients=clients) for knob in KNOBS}
        progress = Progress(spec.train.iterations, budgets=budgets)
        if (state := directory.last_state()) is not None:
            _restore(engine, state, out)
            progress.resume(Run(out), engine.iteration, float(state["seconds"][0]))
            state = None  # and with it the old checkpoint, which is mapped

        def save() -> None:
            seconds = {"seconds": np.array([progress.seconds])}
            directory.checkpoint(engine.iteration, engine.state() | seconds, by_client=spec.record.clients)

        def note_evaluation() -> None:
            progress.evaluation = evaluate()
            directory.store.add_evaluation(
                engine.iteration, {**progress.evaluation, "seconds": progress.seconds}
            )

        committed = progress.seconds
        try:
            while engine.iteration < spec.train.iterations:
                if engine.iteration % spec.train.evaluate_every == 0:
                    note_evaluation()
                record = engine.step()
                directory.store.add_iteration(record)
                progress.add(record)
                if on_progress is not None:
                    on_progress(progress)
                if stop.is_set():
                    save()
                    raise RunInterruptedError(
                        f"stopped after iteration {engine.iteration} of {progress.total}"
                    )
                if engine.iteration % spec.engine.checkpoint_every == 0:
                    save()
                elif progress.seconds - committed > _COMMIT_SECONDS:
                    directory.store.commit(by_client=spec.record.clients)
                    committed = progress.seconds
        except NonFiniteError as error:
            directory.store.commit(by_client=spec.record.clients)
            last = directory.store.checkpoint()
            if last is not None:
                error.args = (f"{error}; the checkpoint of iteration {last[0]} stays",)
            raise
        finally:
            engine.release()
        save()
        note_evaluation()
        directory.store.commit(by_client=spec.record.clients)
        summary = directory.finish(progress.seconds, gradients=engine.gradients.name)
        if on_progress is not None:
            on_progress(progress)
        return Result(problem.model.detached(), engine.params, Run(out), summary)


def _kernels(spec: Spec) -> str | None:
    return None if spec.engine.kernels == "auto" else spec.engine.kernels


def _residuals(spec: Spec, problem: Problem, out: Path) -> NDArray[Any] | None:
    """A file beside the run directory, on the disk that takes its checkpoints, too."""
    if spec.engine.residuals == "memory":
        return None
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    try:
        return mapped_zeros((problem.data.clients, problem.model.dim), spec.engine.dtype, folder)
    except OSError as error:
        size = problem.data.clients * problem.model.dim * problem.model.params.element_size() / 1e9
        rule = f"needs {size:.1f} GB of disk in {folder} ({error.strerror})"
        remedy = "free some space, or choose another --out"
        raise InputError([Fault("engine.residuals", rule, "file", remedy)]) from error


def _restore(engine: Engine, state: Mapping[str, NDArray[Any]], out: Path) -> None:
    try:
        engine.restore(state)
    except ValueError as error:
        remedy = "resume with the same model and settings, or choose another --out"
        raise RunDirectoryError(f"the checkpoint in {out} is of another run: {error}; {remedy}") from error
