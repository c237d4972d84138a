"""A registry for the tests of publishing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.publishing.service import Proxy, Service, serve


@pytest.fixture(scope="session", autouse=True)
def _own_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    # No logins of whoever runs the tests.
    patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    patch.delenv("DOCKER_CONFIG", raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def _binary() -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("there is no docker-registry; install Debian's package of this name")


@pytest.fixture
def service(_binary: None, tmp_path: Path) -> Iterator[Service]:
    """An empty registry."""
    with serve(tmp_path / "registry") as running:
        yield running


@pytest.fixture
def proxy(service: Service) -> Iterator[Proxy]:
    """A proxy before the registry."""
    one = Proxy(service.host)
    yield one
    one.close()
