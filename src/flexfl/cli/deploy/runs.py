"""flexfl deploy submit, status and stop: the admin's commands for runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.cli.deploy.shared import SPEC, AdminKit, Set, create_console, nvflare_modules, project_of
from flexfl.errors import Fault, FlexFLError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.deploy.nvflare.kits import Project
    from flexfl.deploy.nvflare.session import Session
    from flexfl.results.observer import Live
    from flexfl.spec.schema import Spec

_POLL_SECONDS = 1.0
_END_SECONDS = 30.0


def submit(
    kit: AdminKit,
    spec: Annotated[str, SPEC],
    set_: Set = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the run on the server.", show_default="that of SPEC")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run of that name.")] = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Show its progress.")] = True,
) -> None:
    """Submit SPEC to the server, to be trained with all clients of the project."""
    from flexfl.cli.show import show_notes
    from flexfl.deploy.plan import Plan
    from flexfl.spec.load import load_spec

    nvflare, project = nvflare_modules(), project_of(kit)
    resolved = load_spec(spec, [*(set_ or []), f"data.clients={len(project.clients)}"])
    run_name = name or Path(spec).stem
    plan = Plan(run_name, resolved, _roster(project, resolved), resume=resume)
    Plan.of(plan.settings())  # report faults now, not on the server
    console = create_console()
    show_notes(console, [resolved])
    with nvflare.session.session(kit) as admin:
        if active := _active_jobs(admin):
            raise FlexFLError(
                f"{active[0]['name']} is still running; stop it first: flexfl deploy stop {kit}"
            )
        before = admin.live(run_name)
        if before is not None and not resume and before.iteration:
            remedy = "--resume continues it, --name starts another"
            raise FlexFLError(
                f"the server has a run {run_name} already ({before.iteration} iterations); {remedy}"
            )
        with console.status("waiting for clients to connect"):
            present = nvflare.session.wait_for_clients(admin, list(project.clients), resolved.deploy.wait)
        if not present:
            raise FlexFLError(f"no client has connected within {resolved.deploy.wait:g} s; start them first")
        if absent := sorted(set(project.clients) - set(present)):
            console.print(
                f"{', '.join(absent)} not connected: not in this run until it is stopped and resumed"
            )
        admin.submit(run_name, replace(plan, present=present).settings(), present)
        console.print(f"{run_name} is submitted; see its status with: flexfl deploy status {kit}")
        if watch:
            _watch(console, admin, run_name, resolved.train.iterations, before)


def status(kit: AdminKit) -> None:
    """Show which clients are connected, and the status of runs."""
    console, project = create_console(), project_of(kit)
    with nvflare_modules().session.session(kit) as admin:
        connected = admin.clients()
        for client in project.clients:
            console.print(f"{client}: {'connected' if client in connected else 'not connected'}")
        for name in dict.fromkeys(str(job["name"]) for job in admin.jobs()):
            console.print(_status_text(name, admin.live(name)))


def stop(kit: AdminKit) -> None:
    """Stop the run; `submit --resume` continues it."""
    console, session = create_console(), nvflare_modules().session
    with session.session(kit) as admin:
        running = session.running(admin)
        for job in running:
            admin.abort(str(job["job_id"]))
            console.print(f"{job['name']} is stopping; resume with: flexfl deploy submit … --resume")
        if not running:
            console.print("nothing is running")


def _roster(project: Project, spec: Spec) -> dict[str, float]:
    """Return the weight of each client: the spec's list if it has one, else the project's weights."""
    if spec.data.weights == "samples":
        rule = "may not be samples: sites do not report their number of samples before training"
        remedy = "give weights in the project file: clients = {north = 2, south = 1}"
        raise InputError([Fault("data.weights", rule, "samples", remedy)], "the spec")
    if isinstance(spec.data.weights, list):
        return dict(zip(project.clients, spec.data.weights, strict=True))
    return project.clients


def _active_jobs(admin: Session) -> list[dict[str, Any]]:
    """Return the jobs that still train; NVFlare takes ten seconds to notice that one has ended."""
    running = nvflare_modules().session.running
    end = time.monotonic() + _END_SECONDS
    while (jobs := running(admin)) and time.monotonic() < end:
        statuses = [admin.live(str(job["name"])) for job in jobs]
        if not all(live is not None and live.ended for live in statuses):
            break
        time.sleep(_POLL_SECONDS)
    return list(jobs)


def _watch(console: Console, admin: Session, name: str, total: int, before: Live | None) -> None:
    """Show the progress of a run until it has ended; `before` is its status before it was resumed."""
    from flexfl.cli.show import ProgressLine
    from flexfl.deploy.watching import watch

    def runs() -> bool:
        return any(job["name"] == name for job in nvflare_modules().session.running(admin))

    with ProgressLine(console, total) as line:
        try:
            live = watch(
                lambda: admin.live(name), runs, before=before, on_live=line.update, every=_POLL_SECONDS
            )
        except KeyboardInterrupt:
            console.print(f"{name} continues on the server")
            return
    console.print(_status_text(name, live))
    if live.more["state"] == "failed":
        raise FlexFLError(f"{name} has failed")


def _status_text(name: str, live: Live | None) -> str:
    if live is None:
        return f"{name}: no status yet"
    parts = [f"{name}: {live.more['state']}", f"iteration {live.iteration} of {live.total}"]
    if (accuracy := live.evaluation.get("test_accuracy")) is not None:
        parts.append(f"test accuracy {accuracy:.3f}")
    if (averaged := live.evaluation.get("average_test_accuracy")) is not None:
        parts.append(f"averaged {averaged:.3f}")
    if present := live.more.get("present"):
        parts.append(f"participating: {', '.join(present)}")
    lines = [", ".join(parts)]
    if worst := live.more.get("worst"):
        from flexfl.cli.tables import worst_text

        listed = [f"{knob} {worst_text(entry)}" for knob, entry in worst.items()]
        lines.append(f"  worst client, of its budget: {', '.join(listed)}")
    if live.iteration and live.average_cost:
        from flexfl.cli.spending import progress_texts

        lines.append(f"  spent: {', '.join(text.plain for text in progress_texts(live))}")
    if error := live.more.get("error"):
        lines.append(f"  {error}")
    lines += [f"  refused: {why}" for why in (live.more.get("refused") or {}).values()]
    return "\n".join(lines)
