"""Start-up kits: a folder for each participant with its key, certificate and settings.

NVFlare's own provisioning makes them; what differs here is in `local/` of each kit. One folder holds
them all, and `authority/`, which signs certificates: it stays where it is, the kits go to their machines.

    folder/authority/    root key and what was issued; keep it secret
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
"""Names of folders that no client may have."""
USER = "admin@flexfl.org"  # NVFlare wants an address
ORG = "flexfl"
_ROOT_DAYS = 3650  # other certificates last 360 days: `rotate`
# Over TLS. Frames wait in queues, so that a slow site holds up nobody (over "tcp" it would), and may
# have 2 GB (over "http" 4 MB: a larger model never arrives).
_SCHEME = "grpc"
_COMMUNICATION = {
    "allow_adhoc_conns": False,
    # NVFlare keeps a thread for every message it has streamed (its own ones are) for so long; default 60 s
    "streaming_retry_timeout": 10.0,
    "grpc": {
        "max_workers": 4096,  # threads at most, one for each connection; a client has two. Default 100
        "options": [
            ("grpc.max_send_message_length", 2**31 - 2**22),
            ("grpc.max_receive_message_length", 2**31 - 2**22),
            # A host that has gone without a word is noticed after half a minute.
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ],
    },
}
_OWN = "flexfl.deploy.nvflare."


@dataclass(frozen=True, kw_only=True)
class Project:
    """Who takes part.

    server   its host name, which clients connect to and its certificate is made out for; a loopback
             name makes it listen on loopback only
    port     the only one to be opened, at the server; sites and admin both connect to it
    clients  names, with the weight of each
    """

    name: str
    server: str
    port: int
    clients: dict[str, float]


def provision(project: Project, folder: Path) -> list[str]:
    """Make the kits that are not there yet, and name them; those that exist keep their certificates."""
    for reserved in RESERVED & set(project.clients):
        raise FlexFLError(f"clients must not be named {reserved}; give it another name")
    folder.mkdir(parents=True, exist_ok=True)
    missing = [kit for kit in (SERVER, ADMIN, *project.clients) if not (folder / kit).exists()]
    if missing:
        with tempfile.TemporaryDirectory(dir=folder) as made:
            _build(project, folder / _AUTHORITY, Path(made))
            for kit in missing:
                new = Path(made, _subject(project, kit))
                _adjust(new)
                shutil.move(new, folder / kit)
    return missing


def rotate(project: Project, folder: Path, kit: str) -> None:
    """A new key and certificate in one kit; the old one is accepted until it expires, after 360 days."""
    startup, subject = folder / kit / "startup", _subject(project, kit)
    if not startup.exists():
        raise FlexFLError(f"there is no kit of {kit} in {folder}; provision it first")
    issued = folder / _AUTHORITY / project.name / "state" / "cert.json"
    known = json.loads(issued.read_text())
    known.pop(subject, None)
    issued.write_text(json.dumps(known))
    with tempfile.TemporaryDirectory(dir=folder) as made:
        _build(project, folder / _AUTHORITY, Path(made))
        for new in Path(made, subject, "startup").glob("*.[ck][re][ty]"):
            shutil.move(new, startup / new.name)


def check(kit: Path) -> None:
    """Whether a server or client can start from this kit; NVFlare would wait for ever without a word."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    startup = kit / "startup"
    who = "server" if (startup / "fed_server.json").exists() else "client"
    names = ("rootCA.pem", f"{who}.crt", f"{who}.key")
    if absent := [name for name in names if not (startup / name).exists()]:
        raise FlexFLError(f"{startup} has no {', '.join(absent)}; take the kit from `provision` as it is")
    root, own = (x509.load_pem_x509_certificate((startup / name).read_bytes()) for name in names[:2])
    try:
        own.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise FlexFLError(f"the certificate in {startup} is not signed by its rootCA.pem") from error
    if own.not_valid_after_utc < datetime.now(UTC):
        raise FlexFLError(
            f"the certificate in {startup} expired on {own.not_valid_after_utc:%Y-%m-%d}; rotate it"
        )


def _subject(project: Project, kit: str) -> str:
    """Whom the certificate in a kit names."""
    return {SERVER: project.server, ADMIN: USER}.get(kit, kit)


def _build(project: Project, authority: Path, made: Path) -> None:
    """All kits as NVFlare makes them, under `made`."""
    from nvflare.lighter.entity import Participant
    from nvflare.lighter.entity import Project as LighterProject
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    authority.mkdir(mode=0o700, exist_ok=True)
    try:
        everyone = [
            Participant("server", project.server, ORG, {"fed_learn_port": project.port}),
            Participant("admin", USER, ORG, {"role": "project_admin"}),
            *(Participant("client", name, ORG) for name in project.clients),
        ]
        described = LighterProject(project.name, "", everyone, {"api_version": 3})
    except ValueError as error:
        raise FlexFLError(f"NVFlare does not take this project: {error}") from error
    files = StaticFileBuilder(config_folder="config", scheme=_SCHEME)
    builders = [WorkspaceBuilder(), files, CertBuilder(root_valid_days=_ROOT_DAYS)]
    told = _Told()
    context = Provisioner(str(authority), builders).provision(described, logger=told)
    if context.get("build_error"):
        raise FlexFLError("NVFlare could not make the kits: " + "; ".join(told.errors))
    current = Path(context["current_prod_dir"])
    for kit in current.iterdir():
        shutil.move(kit, made / kit.name)
    shutil.rmtree(current)


class _Told:
    """What NVFlare's provisioning says goes here instead of to the screen."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, message: str) -> None:
        self.errors.append(message)

    def info(self, message: str) -> None:
        pass

    debug = warning = info


def _adjust(kit: Path) -> None:
    """The settings of a kit that differ from NVFlare's."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    if "servers" in resources:
        _adjust_server(resources)
    elif "client" in resources:
        _adjust_client(resources)
    else:
        return
    resources["class_allow_list"].append(_OWN)
    _write(local / "resources.json", resources)
    _write(local / "comm_config.json", _COMMUNICATION)
    log = json.loads((local / "log_config.json.default").read_text())
    log["loggers"]["root"] = {"level": "INFO", "handlers": ["logFileHandler", "errorFileHandler"]}
    for handler in log["handlers"].values():
        if "maxBytes" in handler:
            handler |= {"maxBytes": 2**20, "backupCount": 3}
    _write(local / "log_config.json", log)


def _adjust_server(resources: dict[str, Any]) -> None:
    resources["servers"][0] |= {"heart_beat_timeout": 30, "max_num_clients": 10_000}
    _component(resources, "job_scheduler").update(
        min_schedule_interval=1.0, max_schedule_interval=2.0, max_schedule_count=1_000_000
    )
    _without(resources, "log_receiver")


def _adjust_client(resources: dict[str, Any]) -> None:
    """Our launcher; no streaming of logs to the server."""
    resources["allow_log_streaming"] = False
    resources["client"]["client_register_interval"] = 0.2
    for component in resources["components"]:
        if component["id"] == "process_launcher":
            component |= {"path": _OWN + "launcher.RestartingLauncher", "args": {}}
    _without(resources, "site_log_streamer")


def settle(kit: Path) -> None:
    """The server keeps its jobs in its kit, wherever that is now, and not in a folder that everyone shares.

    NVFlare wants absolute paths here, so this is done whenever it starts.
    """
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str(kit / "storage" / "snapshots")
    _component(resources, "job_manager")["uri_root"] = str(kit / "storage" / "jobs")
    _write(path, resources)


def _component(resources: dict[str, Any], name: str) -> dict[str, Any]:
    """The arguments of a component."""
    [found] = [each for each in resources["components"] if each["id"] == name]
    arguments: dict[str, Any] = found["args"]
    return arguments


def _without(resources: dict[str, Any], component: str) -> None:
    resources["components"] = [each for each in resources["components"] if each["id"] != component]


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2))
