"""Start-up kits: a folder for each participant with its key, certificate and settings.

NVFlare's provisioning creates them; `local/` in each kit holds settings that differ from its defaults.
One folder contains all kits, which are copied to their machines, and `authority/`, which signs
certificates and stays where it is.

    folder/authority/    root key and issued certificates; keep it secret
    folder/server/       folder/<client>/       folder/admin/
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flexfl.errors import FlexFLError

SERVER, ADMIN, _AUTHORITY = "server", "admin", "authority"
RESERVED = frozenset({SERVER, ADMIN, _AUTHORITY})
"""Folder names that no client may have."""
USER = "admin@flexfl.org"  # NVFlare requires an address
ORG = "flexfl"
_ROOT_DAYS = 3650  # other certificates are valid for 360 days: see `rotate`
HEARTBEAT = 600.0
"""Seconds between two heartbeats of a client, unless its project says otherwise: 3.3 MB a month."""
_KEPT = "flexfl_heartbeat"  # where a kit keeps it, in local/comm_config.json
_OLD_HEARTBEAT = 2.0  # of kits from before it could be set
_PING_TIMEOUT = 20.0  # seconds; also how long sent data may stay without acknowledgement


def communication(heartbeat: float) -> dict[str, Any]:
    """Return NVFlare's settings of connections, for a client that is heard of every `heartbeat` seconds.

    A ping of gRPC is only sent on a connection that has been silent for longer than a heartbeat: that of a
    job's process. Who has disappeared without closing its connection is noticed `_PING_TIMEOUT` after
    anything was sent to it, and 1.25 heartbeats and `_PING_TIMEOUT` after the last sign of life at the
    latest.
    """
    silent = max(20.0, 1.25 * heartbeat)
    return {
        _KEPT: heartbeat,
        "allow_adhoc_conns": False,
        # How long NVFlare keeps a thread for each message it has streamed, as it does its own; default 60 s
        "streaming_retry_timeout": 10.0,
        "heartbeat_interval": max(60, int(2 * heartbeat)),  # its own ping, of a silent connection
        "grpc": {
            "max_workers": 4096,  # most threads, one per connection; a client has two. Default 100
            "options": [
                ("grpc.max_send_message_length", 2**31 - 2**22),
                ("grpc.max_receive_message_length", 2**31 - 2**22),
                ("grpc.keepalive_time_ms", int(1000 * silent)),
                ("grpc.keepalive_timeout_ms", int(1000 * _PING_TIMEOUT)),
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", int(500 * silent)),
                ("grpc.http2.bdp_probe", 0),  # no ping after messages, to find out how fast the link is
            ],
        },
    }


def heartbeat_of(kit: Path) -> float:
    """Return the seconds between two heartbeats that a kit was made for."""
    settings = json.loads((kit / "local" / "comm_config.json").read_text())
    return float(settings.get(_KEPT, _OLD_HEARTBEAT))


_PACKAGE = "flexfl.deploy.nvflare."


@dataclass(frozen=True, kw_only=True)
class Project:
    """The participants of a federation.

    Attributes:
        name: Name of the project.
        server: Host name of the server, also in its certificate; with a loopback name the server
            listens on loopback only.
        port: The only open port, at the server; sites and admin connect to it.
        clients: The clients' names, with the weight of each.
        heartbeat: Seconds between two heartbeats of a client that has nothing else to send.
    """

    name: str
    server: str
    port: int
    clients: dict[str, float]
    heartbeat: float = HEARTBEAT


def provision(project: Project, folder: Path) -> list[str]:
    """Create the missing kits in `folder`, and return their names; existing kits are not changed."""
    for reserved in RESERVED & set(project.clients):
        raise FlexFLError(f"clients must not be named {reserved}; give it another name")
    folder.mkdir(parents=True, exist_ok=True)
    missing = [kit for kit in (SERVER, ADMIN, *project.clients) if not (folder / kit).exists()]
    if missing:
        with tempfile.TemporaryDirectory(dir=folder) as built:
            _build(project, folder / _AUTHORITY, Path(built))
            for kit in missing:
                new = Path(built, _subject(project, kit))
                _adjust(new, project.heartbeat)
                shutil.move(new, folder / kit)
    return missing


def rotate(project: Project, folder: Path, kit: str) -> None:
    """Replace key and certificate in one kit; the old ones are accepted until they expire, after 360 days.

    Args:
        project: The project.
        folder: The folder of the kits.
        kit: Name of the kit: a client, "server" or "admin".
    """
    startup, subject = folder / kit / "startup", _subject(project, kit)
    if not startup.exists():
        raise FlexFLError(f"there is no kit of {kit} in {folder}; provision it first")
    state_file = folder / _AUTHORITY / project.name / "state" / "cert.json"
    issued = json.loads(state_file.read_text())
    issued.pop(subject, None)
    state_file.write_text(json.dumps(issued))
    with tempfile.TemporaryDirectory(dir=folder) as built:
        _build(project, folder / _AUTHORITY, Path(built))
        for new in Path(built, subject, "startup").glob("*.[ck][re][ty]"):
            shutil.move(new, startup / new.name)


_OF = {"server": "a server", "client": "a client", "admin": "an admin"}


def require(kit: Path, kind: str) -> None:
    """Raise FlexFLError, which says whose kit it is, if it is not that of a `kind`.

    Args:
        kit: The folder that a person gave.
        kind: "server", "client" or "admin".
    """
    if (kit / "startup" / f"fed_{kind}.json").exists():
        return
    found = next((one for one in _OF if (kit / "startup" / f"fed_{one}.json").exists()), None)
    remedy, beside = "flexfl deploy provision creates kits", kit.parent / kind
    if found is not None:
        whose = f"the client {_client_name(kit)}" if found == "client" else f"the {found}"
        problem = f"is not the kit of {_OF[kind]} but of {whose}"
        remedy = f"name {_OF[kind]}'s kit" + (f", for example {beside}" if beside.is_dir() else "")
    elif not kit.is_dir():
        problem = "is not a folder"
    else:
        problem = f"is not the kit of {_OF[kind]}"
        inside = sorted(path.parents[1] for path in kit.glob(f"*/startup/fed_{kind}.json"))
        remedy = f"did you mean {inside[0]}?" if inside else remedy
    raise FlexFLError(f"{kit} {problem}; {remedy}")


def _client_name(kit: Path) -> str:
    """Return the name in a client's kit; that of the folder if the file is not as NVFlare writes it."""
    try:
        return str(json.loads((kit / "startup" / "fed_client.json").read_text())["client"]["fqsn"])
    except (OSError, ValueError, KeyError, TypeError):
        return kit.name


def check(kit: Path) -> None:
    """Raise FlexFLError if a server or client cannot start from this kit.

    Without this check NVFlare would wait forever, without a message.
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    startup = kit / "startup"
    who = "server" if (startup / "fed_server.json").exists() else "client"
    names = ("rootCA.pem", f"{who}.crt", f"{who}.key")
    if absent := [name for name in names if not (startup / name).exists()]:
        raise FlexFLError(f"{startup} has no {', '.join(absent)}; take the kit from `provision` as it is")
    root, certificate = (x509.load_pem_x509_certificate((startup / name).read_bytes()) for name in names[:2])
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise FlexFLError(f"the certificate in {startup} is not signed by its rootCA.pem") from error
    if (expiry := certificate.not_valid_after_utc) < datetime.now(UTC):
        raise FlexFLError(f"the certificate in {startup} expired on {expiry:%Y-%m-%d}; rotate it")


def _subject(project: Project, kit: str) -> str:
    """Return the subject of the certificate in a kit."""
    return {SERVER: project.server, ADMIN: USER}.get(kit, kit)


def _build(project: Project, authority: Path, out: Path) -> None:
    """Create all kits in `out` with NVFlare's provisioning."""
    from nvflare.lighter.entity import Participant
    from nvflare.lighter.entity import Project as LighterProject
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    authority.mkdir(mode=0o700, exist_ok=True)
    try:
        participants = [
            Participant("server", project.server, ORG, {"fed_learn_port": project.port}),
            Participant("admin", USER, ORG, {"role": "project_admin"}),
            *(Participant("client", name, ORG) for name in project.clients),
        ]
        lighter_project = LighterProject(project.name, "", participants, {"api_version": 3})
    except ValueError as error:
        raise FlexFLError(f"NVFlare does not accept this project: {error}") from error
    # Over gRPC frames are queued, so that a slow site does not block others (over "tcp" it would), and may
    # have 2 GB (over "http" 4 MB: a larger model never arrives).
    files = StaticFileBuilder(config_folder="config", scheme="grpc")
    builders = [WorkspaceBuilder(), files, CertBuilder(root_valid_days=_ROOT_DAYS)]
    log = _ErrorLog()
    context = Provisioner(str(authority), builders).provision(lighter_project, logger=log)
    if context.get("build_error"):
        raise FlexFLError("NVFlare could not create the kits: " + "; ".join(log.errors))
    current = Path(context["current_prod_dir"])
    for kit in current.iterdir():
        shutil.move(kit, out / kit.name)
    shutil.rmtree(current)


class _ErrorLog:
    """A logger for NVFlare's provisioning that keeps errors and prints nothing."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, message: str) -> None:
        self.errors.append(message)

    def info(self, message: str) -> None:
        pass

    debug = warning = info


def _adjust(kit: Path, heartbeat: float) -> None:
    """Write the settings of a kit that differ from NVFlare's defaults."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    if "servers" in resources:
        _adjust_server(resources, heartbeat)
    elif "client" in resources:
        _adjust_client(resources)
    else:
        return
    resources["class_allow_list"].append(_PACKAGE)
    _write(local / "resources.json", resources)
    _write(local / "comm_config.json", communication(heartbeat))
    log = json.loads((local / "log_config.json.default").read_text())
    log["loggers"]["root"] = {"level": "INFO", "handlers": ["logFileHandler", "errorFileHandler"]}
    for handler in log["handlers"].values():
        if "maxBytes" in handler:
            handler |= {"maxBytes": 2**20, "backupCount": 3}
    _write(local / "log_config.json", log)


def _adjust_server(resources: dict[str, Any], heartbeat: float) -> None:
    """Set when a client that is silent counts as gone, how often jobs are started, and where no logs go."""
    resources["servers"][0] |= {
        "heart_beat_timeout": max(30, int(2.5 * heartbeat)),
        "max_num_clients": 10_000,
    }
    _component(resources, "job_scheduler").update(
        min_schedule_interval=1.0, max_schedule_interval=2.0, max_schedule_count=1_000_000
    )
    _remove_component(resources, "log_receiver")


def _adjust_client(resources: dict[str, Any]) -> None:
    """Set our launcher; stream no logs to the server."""
    resources["allow_log_streaming"] = False
    resources["client"]["client_register_interval"] = 0.2
    for component in resources["components"]:
        if component["id"] == "process_launcher":
            component |= {"path": _PACKAGE + "launcher.RestartingLauncher", "args": {}}
    _remove_component(resources, "site_log_streamer")


def set_storage_paths(kit: Path) -> None:
    """Let the server store its jobs in its kit, not in a folder shared by all servers of the machine.

    NVFlare needs absolute paths, and the kit may have been moved: call this whenever the server starts.
    """
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str(kit / "storage" / "snapshots")
    _component(resources, "job_manager")["uri_root"] = str(kit / "storage" / "jobs")
    _write(path, resources)


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the arguments of a component."""
    [found] = [each for each in resources["components"] if each["id"] == name]
    arguments: dict[str, Any] = found["args"]
    return arguments


def _remove_component(resources: dict[str, Any], component: str) -> None:
    resources["components"] = [each for each in resources["components"] if each["id"] != component]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2))
