"""Who has no certificate of this federation, or another's name, does not come in."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexfl.deploy.demo import Federation, federation
from flexfl.deploy.nvflare.kits import Project, check, provision
from flexfl.deploy.nvflare.processes import Process
from flexfl.errors import FlexFLError

pytestmark = pytest.mark.filterwarnings("ignore:ssl_context is deprecated:DeprecationWarning")

_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server with site-1; the kit of site-2 exists, its process does not run."""
    folder = tmp_path_factory.mktemp("kits")
    with federation(folder, 1) as processes:
        project = processes.project
        both = Project(
            name=project.name,
            server=project.server,
            port=project.port,
            clients={"site-1": 0.5, "site-2": 0.5},
        )
        provision(both, folder)
        yield processes


@pytest.fixture(scope="module")
def foreign(one: Federation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of site-2 that another authority has made; it trusts the real one."""
    folder = tmp_path_factory.mktemp("foreign")
    project = one.project
    provision(
        Project(name=project.name, server=project.server, port=project.port, clients={"site-2": 1.0}), folder
    )
    shutil.copy(one.folder / "site-2/startup/rootCA.pem", folder / "site-2/startup/rootCA.pem")
    return folder / "site-2"


def says(one: Federation, kit: Path | None, version: ssl.TLSVersion) -> bytes:
    """What the server says to one who comes with the certificate of that kit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(one.folder / "site-1/startup/rootCA.pem")
    context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup/client.crt", kit / "startup/client.key")
    plain = socket.create_connection(("localhost", one.project.port), 5)
    with context.wrap_socket(plain, server_hostname="localhost") as secure:
        secure.settimeout(5)
        secure.sendall(_HTTP2)
        return secure.recv(100)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_a_certificate_or_with_a_foreign_one_there_is_no_connection(
    one: Federation, foreign: Path, version: ssl.TLSVersion
) -> None:
    assert says(one, one.folder / "site-2", version)  # a true one is answered
    for kit in (None, foreign):
        try:
            answered = says(one, kit, version)
        except (ssl.SSLError, ConnectionError):
            continue
        assert answered == b""  # closed without a word


def test_a_foreign_kit_is_known_before_it_starts(one: Federation, foreign: Path, tmp_path: Path) -> None:
    check(one.folder / "site-2")
    with pytest.raises(FlexFLError, match="site-2"):
        check(foreign)
    bare = tmp_path / "bare"
    shutil.copytree(one.folder / "site-2", bare)
    (bare / "startup/client.crt").unlink()
    with pytest.raises(FlexFLError, match="bare"):
        check(bare)


def test_a_foreign_client_never_registers(one: Federation, foreign: Path) -> None:
    stays_out(one, foreign, "site-2")


def test_nobody_registers_under_anothers_name(one: Federation, tmp_path: Path) -> None:
    """site-1's own certificate, and the name of site-2."""
    kit = tmp_path / "disguised"
    shutil.copytree(
        one.folder / "site-1", kit, ignore=shutil.ignore_patterns("log.txt", "*.log", "output.txt", "flexfl")
    )
    config = kit / "startup/fed_client.json"
    content = json.loads(config.read_text())
    content["client"]["fqsn"] = "site-2"
    config.write_text(json.dumps(content))
    stays_out(one, kit, "site-2")
    log = (one.server.kit / "log.txt").read_text()
    assert "authenticated as 'site-1' but claimed endpoint 'site-2'" in log


def stays_out(one: Federation, kit: Path, name: str) -> None:
    """It tries for some seconds, and is never among those connected; a true client then is."""
    process = Process(kit)
    try:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            assert process.running  # it goes on trying
            assert name not in one.admin.clients()
            time.sleep(0.5)
    finally:
        process.stop()
    true = Process(one.folder / name)
    try:
        end = time.monotonic() + 60
        while name not in one.admin.clients():
            assert time.monotonic() < end, "the true one does not come in either"
            time.sleep(0.2)
    finally:
        true.stop()
        while name in one.admin.clients():  # until its last heartbeat is forgotten
            time.sleep(0.5)


def test_who_is_removed_is_out_until_it_is_admitted(one: Federation) -> None:
    one.admin.refuse("site-1")
    end = time.monotonic() + 30
    while "site-1" in one.admin.clients():
        assert time.monotonic() < end
        time.sleep(0.2)
    one.admin.admit("site-1")
    while "site-1" not in one.admin.clients():
        assert time.monotonic() < end + 60
        time.sleep(0.2)
