"""A whole run: from a spec to a trained model and a run directory. The entry that takes a spec."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from flexfl.control.feasible import budget_notes
from flexfl.costs import Measured
from flexfl.data.augment import crop_flip
from flexfl.data.datasets import load_federated
from flexfl.data.federated import Federated
from flexfl.errors import Fault, FlexFLWarning, InputError, NonFiniteError, RunDirectoryError
from flexfl.evaluate import Evaluator
from flexfl.identity import Identity
from flexfl.mapped import mapped_zeros
from flexfl.models.build import Accuracy, Loss, build_model
from flexfl.models.flat import FlatModel, own_generator
from flexfl.prepare import prepare
from flexfl.registry import is_given, must_be_given_again
from flexfl.results.directory import DirectoryWriter, RunDirectory
from flexfl.results.observer import Observer, Observers, Progress, RunInfo
from flexfl.results.partition import Partition
from flexfl.results.run import Run, read_spec
from flexfl.sim.engine import Engine, Problem
from flexfl.sim.objects import Objects, copied, describe, resolve
from flexfl.sim.process import default_threads, stop_signals, threads
from flexfl.sim.train import Evaluate, Extent, RunInterruptedError, train
from flexfl.spec.build import (
    budget_terms,
    build_setup,
    build_trackers,
    check_budgets,
    check_setup,
    packages,
    refuse_arguments,
    refuse_for_simulation,
)
from flexfl.spec.load import to_toml
from flexfl.spec.schema import Spec
from flexfl.streams import Streams

__all__ = ["Result", "RunInterruptedError", "prepared", "problem_of", "simulate"]


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        model: the trained network.
        params: its trained parameters x, (D,).
        average: the averaged model x̄, (D,); None unless `train.average` is set.
        averaged_model: a copy of the network with x̄ as its parameters; None likewise.
        run: everything that was recorded.
        summary: the final metrics, as `flexfl run --json` prints them.
    """

    model: nn.Module
    params: NDArray[Any]
    run: Run
    summary: dict[str, Any]
    average: NDArray[Any] | None = None
    averaged_model: nn.Module | None = None


def simulate(
    spec: Spec | str | Path | None = None,
    *,
    model: nn.Module | Mapping[str, Any] | None = None,
    data: Federated | Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    accuracy: Accuracy | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    **sections: Mapping[str, Any],
) -> Result:
    """Train under budgets.

    Args:
        spec: the name of a shipped spec, a TOML file or a `Spec`; by default the paper's settings.
        model: any nn.Module, of which a copy is trained (`Result.model`); or the section of a spec; the
            spec's network if left out.
        data: a `Federated`, or the section of a spec; the spec's dataset if left out.
        loss: outputs and labels of a minibatch → mean loss; by default cross-entropy for class labels and
            mean squared error for numbers. Samples without labels (dicts) are passed whole, and by default
            the loss is the one that the model returns.
        accuracy: outputs and labels, or whole samples → the share that is right; by default that of classes.
        out: the run directory; a temporary one if left out.
        resume: continue the run in `out`.
        observers: notified of what happens (`flexfl.Observer`).
        **sections: settings over those of the spec: budget={"uplink": 0.01}, train={"iterations": 500}, …
            costs={"uplink": …} may hold a `CostModel`, compress={"uplink": …} a `Compressor`,
            control={"policy": …} a `Policy`, train={"schedule": …} a `Schedule`, and train={"local": …} a
            `LocalWork`, as objects.

    Returns:
        The trained model and what was recorded.

    Raises:
        InputError: lists all faults of what was given, before any work starts.
        RunInterruptedError: Ctrl-C or SIGTERM; the run can be resumed.
        FlexFLWarning: as a warning, if a policy leaves a knob or budget alone; it is in the notes, too.
    """
    if isinstance(model, Mapping):
        sections, model = sections | {"model": model}, None
    if isinstance(data, Mapping):
        sections, data = sections | {"data": data}, None
    refuse_arguments(spec, model, data, loss, out, resume, observers, sections)
    resolved, objects = resolve(spec, sections, Objects(copied(model), data, *copied((loss, accuracy))))
    resolved, count = _with_threads(resolved, out)
    with threads(count), own_generator():
        problem = _prepare(resolved, objects)
        described = describe(resolved, problem, objects)
        watching = [*observers, *build_trackers(resolved)]
        for note in _notes(resolved, problem):
            warnings.warn(note, FlexFLWarning, stacklevel=2)
        if out is not None:
            return _run(resolved, problem, described, Path(out), resume, watching, Path(out))
        with tempfile.TemporaryDirectory(prefix="flexfl-") as folder:
            # A run without `out` leaves no files behind.
            result = _run(resolved, problem, described, Path(folder) / "run", False, watching, None)
            # Read before the folder goes.
            _ = result.run.spec, result.run.summary, result.run.clients, result.run.partition
            return result


def _with_threads(spec: Spec, out: str | Path | None) -> tuple[Spec, int]:
    """Return the spec with its number of threads, and that number.

    It is stored with the run, and taken from there: another may round sums in another order.
    """
    count = spec.engine.threads
    if count is None and out is not None:
        with suppress(RunDirectoryError, KeyError):  # no run, or one that resuming reports on
            count = int(read_spec(Path(out))["engine"]["threads"])
    count = count or default_threads()
    return spec.model_copy(update={"engine": spec.engine.model_copy(update={"threads": count})}), count


def _prepare(spec: Spec, objects: Objects) -> Problem:
    """Build everything and check what the spec alone does not show, before any work starts."""
    refuse_for_simulation(spec)
    data = objects.data
    if data is None:
        if is_given(spec.data.name):
            raise must_be_given_again("data.name", spec.data.name)
        data = load_federated(
            spec.data.name,
            path=spec.data.path,
            clients=spec.data.clients,
            partition=spec.data.partition,
            seed=spec.train.seed,
        )
    streams = Streams(spec.train.seed)
    module = objects.model or build_model(spec.model.name, spec.model.options, streams)
    flat, loss = prepare(
        module,
        data,
        loss=objects.loss,
        dtype=getattr(torch, spec.engine.dtype),
        device=spec.engine.device,
        augment=spec.data.augment,
        accuracy=objects.accuracy,
    )
    problem = problem_of(spec, flat, data, loss, streams=streams, objects=objects)
    if isinstance(problem.setup.costs["compute"], Measured):
        rule = "cannot be measured in a simulation, which does not run at the clients' pace"
        remedy = "choose another cost, or run it with flexfl deploy"
        fault = Fault("costs.compute", rule, type(problem.setup.costs["compute"]).__name__, remedy)
        raise InputError([fault], "the costs")
    own = (objects.policy, objects.costs, objects.compressors, objects.times, objects.schedule, objects.local)
    if packages(spec) or any(own):
        check_setup(problem.setup, clients=data.clients, dim=flat.dim)
    check_budgets(problem.setup, data.clients, flat.dim)
    return problem


def prepared(spec: Spec) -> Problem:
    """Return what a spec alone says of a run, built and checked, for work other than the run."""
    return _prepare(spec, Objects())


def problem_of(
    spec: Spec,
    model: FlatModel,
    data: Federated,
    loss: Loss,
    *,
    streams: Streams | None = None,
    objects: Objects | None = None,
) -> Problem:
    """Return what `spec` says of a run on this model and these data; streams are the spec's if left out."""
    given = objects or Objects()
    return Problem(
        model=model,
        loss=loss,
        data=data,
        setup=build_setup(
            spec,
            streams=streams,
            costs=given.costs,
            policy=given.policy,
            compressors=given.compressors,
            times=given.times,
            local=given.local,
            schedule=given.schedule,
        ),
        weights=data.weights(spec.data.weights),
        learning_rate=spec.train.learning_rate,
        batch_size=spec.train.batch_size,
        augment=crop_flip if spec.data.augment == "crop-flip" else None,
        accuracy=given.accuracy,
        average=spec.train.average,
    )


def _run(
    spec: Spec,
    problem: Problem,
    described: Identity,
    out: Path,
    resume: bool,
    observers: Sequence[Observer],
    lasting: Path | None,
) -> Result:
    """Train in a run directory, new or resumed; `lasting` is where observers may leave something."""
    # Before the directory: what fails here leaves nothing behind.
    kernels = None if spec.engine.kernels == "auto" else spec.engine.kernels
    zeros = None if spec.engine.residuals == "memory" else partial(_zeros_in_file, spec, out)
    residuals = None if zeros is None else zeros((problem.data.clients, problem.model.dim))
    engine = Engine(
        problem, kernels=kernels, residuals=residuals, gradients=spec.engine.gradients, zeros=zeros
    )
    data = problem.data
    identity = {"data": data.fingerprint(), "model": problem.model.fingerprint()}
    partition = Partition.of(data.parts, np.asarray(data.train_y), data.classes)
    opened = RunDirectory(out, to_toml(spec), identity, resume=resume, partition=partition, objects=described)
    with opened as directory, stop_signals() as stop:
        for note in _notes(spec, problem):
            directory.note(note)
        terms = budget_terms(spec, problem.setup)
        progress = Progress(spec.train.iterations, **terms)
        directory.note_start(engine.params)
        if (state := directory.last_state()) is not None:
            _restore(engine, state, out)
            progress.resume(Run(out), engine.iteration, float(state["seconds"][0]))
            state = None  # and with it the old checkpoint, which is mapped
        writer = DirectoryWriter(directory, by_client=spec.record.clients)
        everyone = Observers([writer, *observers])
        everyone.begin(_info(spec, problem, engine, terms, lasting))
        every = spec.train.evaluate_every, spec.engine.checkpoint_every
        extent = Extent(spec.train.iterations, *every, problem.setup.duration)
        try:
            train(engine, _evaluate(problem, engine), extent, progress, everyone, stop)
        except NonFiniteError as error:
            writer.commit()
            last = directory.store.checkpoint()
            if last is not None:
                error.args = (f"{error}; the checkpoint of iteration {last[0]} stays",)
            raise
        finally:
            engine.release()
        more = {"joint_budgets": joint} if (joint := engine.joint.averages(engine.iteration)) else {}
        summary = writer.summarise(progress, gradients=engine.gradients.name, **more)
        everyone.end(progress, summary)
        return _result(problem.model, engine, Run(out), summary)


def _info(
    spec: Spec, problem: Problem, engine: Engine, terms: dict[str, Any], lasting: Path | None
) -> RunInfo:
    """Return what observers learn of a run before it begins, or goes on."""
    return RunInfo(
        lasting,
        problem.data.clients,
        engine.dim,
        spec.train.iterations,
        engine.iteration,
        spec.plain(),
        terms["budgets"],
        _notes(spec, problem),
        terms["units"],
    )


def _result(model: FlatModel, engine: Engine, run: Run, summary: dict[str, Any]) -> Result:
    """Return the trained model, and the averaged one where it is formed."""
    x_bar = None if engine.average is None else engine.average.params
    averaged = None if x_bar is None else model.copy_with(x_bar)
    return Result(model.detached(), engine.params, run, summary, x_bar, averaged)


def _evaluate(problem: Problem, engine: Engine) -> Evaluate:
    """Return what evaluates the model, and beside it the averaged one, where it is formed."""
    evaluator = Evaluator(problem.model, problem.loss, problem.data, problem.weights, problem.accuracy)

    def evaluate() -> dict[str, float | None]:
        found, x_bar = evaluator(), engine.average
        return found if x_bar is None else found | evaluator.average(x_bar.params)

    return evaluate


def _notes(spec: Spec, problem: Problem) -> list[str]:
    """Return what the run does that its settings do not show."""
    sizes = problem.data.clients, problem.model.dim
    return [*spec.notes(), *problem.setup.unused_budgets(*sizes), *budget_notes(problem.setup, *sizes)]


def _zeros_in_file(spec: Spec, out: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return zeros in a file beside the run directory, on the disk that takes its checkpoints, too."""
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    try:
        return mapped_zeros(shape, spec.engine.dtype, folder)
    except OSError as error:
        size = math.prod(shape) * np.dtype(spec.engine.dtype).itemsize / 1e9
        rule = f"needs {size:.1f} GB of disk in {folder} ({error.strerror})"
        remedy = "free some space, or choose another out=…"
        raise InputError([Fault("engine.residuals", rule, "file", remedy)]) from error


def _restore(engine: Engine, state: Mapping[str, NDArray[Any]], out: Path) -> None:
    try:
        engine.restore(state)
    except ValueError as error:
        remedy = "resume with the same model and settings, or choose another out=…"
        raise RunDirectoryError(f"the checkpoint in {out} is of another run: {error}; {remedy}") from error
