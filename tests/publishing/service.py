"""Debian's docker-registry as a process on loopback, and a proxy before it that counts, cuts and stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Service:
    """A registry that runs: `host` is its address and port, `root` where it keeps everything."""

    host: str
    root: Path

    def blob(self, digest: str) -> Path:
        """Where it keeps a blob."""
        digits = digest.removeprefix("sha256:")
        return self.root / "docker/registry/v2/blobs/sha256" / digits[:2] / digits / "data"

    def get(self, path: str) -> bytes:
        """Fetch something with nothing of dfc's."""
        connection = http.client.HTTPConnection(self.host)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
            answer = connection.getresponse()
            assert answer.status == 200, path
            return answer.read()

    def put_manifest(self, repository: str, tag: str, text: bytes) -> None:
        """Store a manifest with nothing of dfc's."""
        connection = http.client.HTTPConnection(self.host)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
            connection.request("PUT", f"/v2/{repository}/manifests/{tag}", body=text, headers=headers)
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()


@contextlib.contextmanager
def serve(root: Path, extra: dict[str, object] | None = None) -> Iterator[Service]:
    """Run a registry that keeps everything below `root`."""
    port = free_port()
    configuration = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(root / "storage")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "loopback"},
        **(extra or {}),
    }
    root.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    (root / "config.yml").write_text(json.dumps(configuration))
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", root / "config.yml"], stdout=log, stderr=log)
    try:
        _wait(port, process, root / "log")
        yield Service(f"127.0.0.1:{port}", root / "storage")
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


class Proxy:
    """Passes connections on to `host`, counts the bytes of both directions, and cuts or stops when told to."""

    def __init__(self, host: str) -> None:
        name, port = host.split(":")
        self._target = (name, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self.stopped, self._go_on = threading.Event(), threading.Event()
        self._open: list[socket.socket] = []
        self.reset()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, cut_after: int | None = None, *, stop_after: int | None = None) -> None:
        """Count from 0 again; after `cut_after` bytes from the registry, cut every connection, once.

        After `stop_after` bytes of both directions nothing more passes, and `stopped` is set, until the next reset.
        """
        self._go_on.set()
        self._go_on = threading.Event()
        self.stopped.clear()
        with self._lock:
            self.up = self.down = 0
            self._cut_after, self._stop_after = cut_after, stop_after

    def close(self) -> None:
        """Cut everything and accept nothing more."""
        self._listener.close()
        self._go_on.set()
        self._cut()

    def _cut(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                with self._lock:
                    if is_up:
                        self.up += len(data)
                    else:
                        self.down += len(data)
                    cuts = self._cut_after is not None and self.down > self._cut_after
                    if cuts:
                        self._cut_after = None
                    stops, go_on = self._stop_after is not None and self.up + self.down > self._stop_after, self._go_on
                if cuts:
                    self._cut()
                    return
                if stops:
                    self.stopped.set()
                    go_on.wait()
                    return
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
