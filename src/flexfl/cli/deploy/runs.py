"""flexfl deploy submit, status and stop: what the admin does with runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli.deploy.shared import AdminKit, Set, adapter, console_of, read
from flexfl.errors import Fault, FlexFLError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.deploy.nvflare.kits import Project
    from flexfl.deploy.nvflare.session import Session
    from flexfl.results.progress import Live
    from flexfl.spec.schema import Spec

_LOOK_SECONDS = 1.0
_LAST_SECONDS = 30.0


def submit(
    kit: AdminKit,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A spec that ships, or a TOML file.")],
    set_: Set = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the run, on the server.", show_default="that of SPEC")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Show how it goes.")] = True,
) -> None:
    """Have the server and all clients of the project train SPEC."""
    from flexfl.deploy.plan import Plan
    from flexfl.spec.load import load_spec

    nvflare, project = adapter(), read(kit / "project.toml")
    resolved = load_spec(spec, [*(set_ or []), f"data.clients={len(project.clients)}"])
    called = name or Path(spec).stem
    plan = Plan(called, resolved, _roster(project, resolved), resume=resume)
    Plan.of(plan.settings())  # what is wrong with it is said here, not on the server
    console = console_of()
    with nvflare.session.session(kit) as admin:
        if busy := _busy(admin):
            raise FlexFLError(f"{busy[0]['name']} is still running; stop it first: flexfl deploy stop {kit}")
        before = admin.live(called)
        if before is not None and not resume and before.iteration:
            remedy = "--resume goes on with it, --name begins another"
            raise FlexFLError(
                f"the server has a run {called} already ({before.iteration} iterations); {remedy}"
            )
        with console.status("waiting for clients to connect"):
            present = nvflare.session.wait_for_clients(admin, list(project.clients), resolved.deploy.wait)
        if not present:
            raise FlexFLError(f"no client has connected within {resolved.deploy.wait:g} s; start them first")
        if absent := sorted(set(project.clients) - set(present)):
            told = f"{', '.join(absent)} not connected: out of this run until it is stopped and resumed"
            console.print(told)
        admin.submit(called, replace(plan, present=present).settings(), present)
        console.print(f"{called} is submitted; look at it with: flexfl deploy status {kit}")
        if watch:
            _watch(console, admin, called, resolved.train.iterations, before)


def status(kit: AdminKit) -> None:
    """Who is connected, and how runs go."""
    console, project = console_of(), read(kit / "project.toml")
    with adapter().session.session(kit) as admin:
        connected = admin.clients()
        for client_ in project.clients:
            console.print(f"{client_}: {'connected' if client_ in connected else 'not connected'}")
        for name in dict.fromkeys(str(job["name"]) for job in admin.jobs()):
            console.print(_told(name, admin.live(name)), markup=False)


def stop(kit: AdminKit) -> None:
    """Stop the run; `submit --resume` goes on with it."""
    console = console_of()
    with adapter().session.session(kit) as admin:
        running = adapter().session.running(admin)
        for job in running:
            admin.abort(str(job["job_id"]))
            console.print(f"{job['name']} is asked to stop; go on with it: flexfl deploy submit … --resume")
        if not running:
            console.print("nothing is running")


def _roster(project: Project, spec: Spec) -> dict[str, float]:
    """Weights as the project has them, or the spec's list."""
    if spec.data.weights == "samples":
        rule = "may not be samples: sites do not tell theirs before training"
        remedy = "give weights in the project file: clients = {north = 2, south = 1}"
        raise InputError([Fault("data.weights", rule, "samples", remedy)], "the spec")
    if isinstance(spec.data.weights, list):
        return dict(zip(project.clients, spec.data.weights, strict=True))
    return project.clients


def _busy(admin: Session) -> list[dict[str, Any]]:
    """Jobs that still train; NVFlare takes ten seconds to see that one has ended."""
    running = adapter().session.running
    end = time.monotonic() + _LAST_SECONDS
    while (jobs := running(admin)) and time.monotonic() < end:
        told = [admin.live(str(job["name"])) for job in jobs]
        if not all(live is not None and live.ended for live in told):
            break
        time.sleep(_LOOK_SECONDS)
    return list(jobs)


def _watch(console: Console, admin: Session, name: str, total: int, before: Live | None) -> None:
    """Until the run has ended; `before` is what the server told of an earlier part of it."""
    from flexfl.cli.show import ProgressLine
    from flexfl.deploy.watching import watch

    def runs() -> bool:
        return any(job["name"] == name for job in adapter().session.running(admin))

    with ProgressLine(console, total) as line:
        try:
            live = watch(
                lambda: admin.live(name), runs, before=before, on_live=line.update, every=_LOOK_SECONDS
            )
        except KeyboardInterrupt:
            console.print(f"{name} goes on without being watched")
            return
    console.print(_told(name, live), markup=False)
    if live.more["state"] == "failed":
        raise FlexFLError(f"{name} has failed")


def _told(name: str, live: Live | None) -> str:
    if live is None:
        return f"{name}: nothing is told yet"
    parts = [f"{name}: {live.more['state']}", f"iteration {live.iteration} of {live.total}"]
    if (accuracy := live.evaluation.get("test_accuracy")) is not None:
        parts.append(f"test accuracy {accuracy:.3f}")
    if present := live.more.get("present"):
        parts.append(f"taking part: {', '.join(present)}")
    lines = [", ".join(parts)]
    if error := live.more.get("error"):
        lines.append(f"  {error}")
    lines += [f"  refused: {why}" for why in (live.more.get("refused") or {}).values()]
    return "\n".join(lines)
