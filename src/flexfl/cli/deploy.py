"""flexfl deploy: the same method between machines."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flexfl.errors import Fault, FlexFLError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flexfl.deploy.nvflare.kits import Project
    from flexfl.deploy.nvflare.session import Session
    from flexfl.results.progress import Live
    from flexfl.spec.schema import Spec

app = typer.Typer(help="Train between machines, or between processes on this one.", no_args_is_help=True)

_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a setting: --set train.iterations=500"),
]
_Project = Annotated[Path, typer.Argument(metavar="PROJECT.toml", help="Who takes part; see docs/deploy.md.")]
_Kits = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the kits.")]
_Admin = Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the admin.")]
_LOOK_SECONDS = 1.0
_LAST_SECONDS = 30.0


@app.command("demo")
def demo(
    spec: Annotated[
        str, typer.Argument(metavar="[SPEC]", help="A spec that ships, or a TOML file.")
    ] = "demo",
    clients: Annotated[int, typer.Option("--clients", min=1, help="How many clients to start.")] = 3,
    set_: _Set = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Run directory.", show_default="runs/deploy")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Simulate the same spec afterwards.")
    ] = True,
) -> None:
    """A server and clients on this machine, over mutual TLS: certificates, training, report."""
    console = _console()
    from flexfl.cli.data import bring_for
    from flexfl.cli.show import ProgressLine, show_result
    from flexfl.spec.load import load_spec

    resolved = load_spec(spec, [*(set_ or []), f"data.clients={clients}"])
    bring_for(console, [resolved])
    directory = out or _free(Path("runs") / "deploy")
    train_together = _adapter().demo.demo
    began = time.monotonic()
    with ProgressLine(console, resolved.train.iterations) as line:

        def on_step(what: str) -> None:
            console.print(f"{time.monotonic() - began:5.1f} s  {what}")

        train_together(resolved, directory, on_step=on_step, on_live=lambda live: line.update(live))
    from flexfl.results.run import Run

    summary = Run(directory).summary or {}
    show_result(console, summary, directory)
    _show_traffic(console, summary)
    if compare and not any(table["kind"] == "measured" for _, table in resolved.costs):
        _compare(console, resolved, summary)


@app.command("provision")
def provision(project: _Project, out: _Kits = Path("kits")) -> None:
    """Certificates and settings: a folder for the server, for each client and for the admin.

    Called again after clients were added to the project file, it makes what is missing.
    """
    given, adapter = _read(project), _adapter()
    with _told_plainly(f"{out} must be a folder that can be written to"):
        made = adapter.kits.provision(given, out)
        copy = out / adapter.kits.ADMIN / adapter.project.PROJECT_FILE
        if copy.resolve() != project.resolve():
            shutil.copyfile(project, copy)
    console = _console()
    console.print(f"{out}: made {', '.join(made)}" if made else f"{out}: everything is there already")
    if made:
        console.print(
            f"copy each folder to its machine; {out / 'authority'} signs certificates: keep it here"
        )


@app.command("rotate")
def rotate(
    project: _Project,
    kit: Annotated[str, typer.Argument(metavar="NAME", help="A client, or server, or admin.")],
    out: _Kits = Path("kits"),
) -> None:
    """A new key and certificate for one client, the server or the admin."""
    given = _read(project)
    if kit not in (known := ["server", "admin", *given.clients]):
        raise InputError(
            [Fault("NAME", f"must be one of {', '.join(known)}", kit, "correct it")], "the command"
        )
    with _told_plainly(f"{out} must be the folder that provision made, with its authority"):
        _adapter().kits.rotate(given, out, kit)
    again = "all clients too" if kit == "server" else "it"
    _console().print(f"bring {out / kit / 'startup'} to its machine, and start {again} again")


@app.command("server")
def server(kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of the server.")]) -> None:
    """Run the server of a kit until Ctrl-C."""
    _foreground(kit, "server")


@app.command("client")
def client(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit of this client.")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE.npz", help="Its samples: train_x and train_y.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Cores it may use.")] = None,
    modules: Annotated[
        list[str] | None, typer.Option("--allow", metavar="PACKAGE", help="A package that runs may call.")
    ] = None,
) -> None:
    """Run the client of a kit until Ctrl-C; what is told here is kept in the kit."""
    import tomli_w

    from flexfl.deploy.settings import SITE_FILE, SiteSettings

    _adapter().kits.check(kit)
    folder = kit / "flexfl"
    if data is not None and not data.is_file():
        raise InputError([Fault("--data", "must be an .npz file", str(data), "name one")], "the command")
    told = {"data": None if data is None else str(data.resolve()), "threads": threads, "modules": modules}
    known = SiteSettings.read(folder).model_dump(exclude_none=True)
    known |= {name: value for name, value in told.items() if value}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SITE_FILE).write_text(tomli_w.dumps(known), encoding="utf-8")
    _foreground(kit, "client")


@app.command("submit")
def submit(
    kit: _Admin,
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A spec that ships, or a TOML file.")],
    set_: _Set = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the run, on the server.", show_default="that of SPEC")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", help="Show how it goes.")] = True,
) -> None:
    """Have the server and all clients of the project train SPEC."""
    from flexfl.deploy.plan import Plan
    from flexfl.spec.load import load_spec

    adapter, project = _adapter(), _read(kit / "project.toml")
    resolved = load_spec(spec, [*(set_ or []), f"data.clients={len(project.clients)}"])
    called = name or Path(spec).stem
    plan = Plan(called, resolved, _roster(project, resolved), resume=resume)
    Plan.of(plan.settings())  # what is wrong with it is said here, not on the server
    console = _console()
    with adapter.session.session(kit) as admin:
        if busy := _busy(admin):
            raise FlexFLError(f"{busy[0]['name']} is still running; stop it first: flexfl deploy stop {kit}")
        before = admin.live(called)
        if before is not None and not resume and before.iteration:
            remedy = "--resume goes on with it, --name begins another"
            raise FlexFLError(
                f"the server has a run {called} already ({before.iteration} iterations); {remedy}"
            )
        with console.status("waiting for clients to connect"):
            present = adapter.session.wait_for_clients(admin, list(project.clients), resolved.deploy.wait)
        if not present:
            raise FlexFLError(f"no client has connected within {resolved.deploy.wait:g} s; start them first")
        if absent := sorted(set(project.clients) - set(present)):
            told = f"{', '.join(absent)} not connected: out of this run until it is stopped and resumed"
            console.print(told)
        admin.submit(called, replace(plan, present=present).settings(), present)
        console.print(f"{called} is submitted; look at it with: flexfl deploy status {kit}")
        if watch:
            _watch(console, admin, called, resolved.train.iterations, before)


@app.command("status")
def status(kit: _Admin) -> None:
    """Who is connected, and how runs go."""
    console, project = _console(), _read(kit / "project.toml")
    with _adapter().session.session(kit) as admin:
        connected = admin.clients()
        for client_ in project.clients:
            console.print(f"{client_}: {'connected' if client_ in connected else 'not connected'}")
        for name in dict.fromkeys(str(job["name"]) for job in admin.jobs()):
            console.print(_told(name, admin.live(name)), markup=False)


@app.command("stop")
def stop(kit: _Admin) -> None:
    """Stop the run; `submit --resume` goes on with it."""
    console = _console()
    with _adapter().session.session(kit) as admin:
        running = _adapter().session.running(admin)
        for job in running:
            admin.abort(str(job["job_id"]))
            console.print(f"{job['name']} is asked to stop; go on with it: flexfl deploy submit … --resume")
        if not running:
            console.print("nothing is running")


@app.command("remove")
def remove(kit: _Admin, client: Annotated[str, typer.Argument(metavar="CLIENT", help="Its name.")]) -> None:
    """Log a client out and keep it out, whatever certificate it has."""
    _known(kit, client)
    with _adapter().session.session(kit) as admin:
        admin.refuse(client)
    _console().print(
        f"{client} is refused from now on; let it in again with: flexfl deploy admit {kit} {client}"
    )


@app.command("admit")
def admit(kit: _Admin, client: Annotated[str, typer.Argument(metavar="CLIENT", help="Its name.")]) -> None:
    """Let a removed client in again."""
    _known(kit, client)
    with _adapter().session.session(kit) as admin:
        admin.admit(client)
    _console().print(f"{client} may connect again")


# What the commands share ---------------------------------------------------------------------------


def _adapter() -> Any:
    """The modules that need NVFlare."""
    from types import SimpleNamespace

    try:
        from flexfl.deploy import demo, project
        from flexfl.deploy.nvflare import kits, processes, session
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("nvflare", "psutil")):
            raise
        raise FlexFLError(
            "flexfl deploy needs NVFlare; install it with: pip install 'flexfl[deploy]'"
        ) from error
    return SimpleNamespace(demo=demo, project=project, kits=kits, processes=processes, session=session)


@contextmanager
def _told_plainly(rule: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FlexFLError(f"{rule} ({error})") from error


def _read(path: Path) -> Project:
    found: Project = _adapter().project.read_project(path)
    return found


def _busy(admin: Session) -> list[dict[str, Any]]:
    """Jobs that still train; NVFlare takes ten seconds to see that one has ended."""
    running = _adapter().session.running
    end = time.monotonic() + _LAST_SECONDS
    while (jobs := running(admin)) and time.monotonic() < end:
        told = [admin.live(str(job["name"])) for job in jobs]
        if not all(live is not None and live.ended for live in told):
            break
        time.sleep(_LOOK_SECONDS)
    return list(jobs)


def _known(kit: Path, client: str) -> None:
    if client not in (clients := _read(kit / "project.toml").clients):
        rule = f"must be one of {', '.join(clients)}"
        raise InputError([Fault("CLIENT", rule, client, "correct it")], "the command")


def _roster(project: Project, spec: Spec) -> dict[str, float]:
    """Weights as the project has them, or the spec's list."""
    if spec.data.weights == "samples":
        rule = "may not be samples: sites do not tell theirs before training"
        remedy = "give weights in the project file: clients = {north = 2, south = 1}"
        raise InputError([Fault("data.weights", rule, "samples", remedy)], "the spec")
    if isinstance(spec.data.weights, list):
        return dict(zip(project.clients, spec.data.weights, strict=True))
    return project.clients


def _foreground(kit: Path, kind: str) -> None:
    """Run a kit's process until Ctrl-C or SIGTERM."""
    import signal
    import threading

    if not (kit / "startup" / f"fed_{kind}.json").exists():
        raise FlexFLError(f"{kit} is no kit of a {kind}; flexfl deploy provision makes them")
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    adapter, console = _adapter(), _console()
    adapter.kits.check(kit)
    process = adapter.processes.Process(kit)
    console.print(f"running; Ctrl-C stops it. What it says is in {kit / 'log.txt'}")
    try:
        while process.running and not asked.wait(0.2):
            pass
    finally:
        process.stop()
    if not asked.is_set():
        raise FlexFLError(f"{kit} has ended by itself; see {kit / 'output.txt'}")
    console.print("stopped")


def _watch(console: Console, admin: Session, name: str, total: int, before: Live | None) -> None:
    """Until the run has ended; `before` is what the server told of an earlier part of it."""
    from flexfl.cli.show import ProgressLine

    live = None
    with ProgressLine(console, total) as line:
        try:
            while live is None or not live.ended:
                time.sleep(_LOOK_SECONDS)
                found = admin.live(name)
                over = not any(job["name"] == name for job in _adapter().session.running(admin))
                if found is not None and (found != before or over):
                    live = found
                    line.update(live)
                if over and (live is None or not live.ended):
                    raise FlexFLError(f"{name} has ended without a word; see log.txt in the server's kit")
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


def _show_traffic(console: Console, summary: dict[str, Any]) -> None:
    for title, kind in (("messages", "payload_bytes"), ("on the wire", "wire_bytes")):
        if told := summary.get(kind):
            console.print(f"{title:14s} {_mb(told['up'])} up, {_mb(told['down'])} down")


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _compare(console: Console, spec: Spec, summary: dict[str, Any]) -> None:
    """The same spec in a simulation: the accuracy should be the same to the last digit that is shown."""
    with console.status("simulating the same"):
        from flexfl.sim.run import simulate

        # One thread: with so few clients a second one costs more than it brings.
        simulated = simulate(spec, engine={"threads": 1}).summary
    ours, theirs = (told["test_accuracy"] for told in (summary, simulated))
    if ours is not None and theirs is not None:
        console.print(f"simulated      test accuracy {theirs:.4f} (between processes: {ours:.4f})")


def _free(base: Path) -> Path:
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)
