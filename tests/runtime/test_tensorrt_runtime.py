"""How a TensorRT engine is bound, with stand-ins for the library and the GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.engines.cuda_weights import DeviceWeights
from dfc.runtime.engines.kernel_cache import KernelCache
from dfc.runtime.engines.tensorrt_runtime import LoadedEngine, TensorRTRuntime
from dfc.runtime.errors import RunError
from tests.runtime.fake_library import fake_library

TENSORS = {
    # name: (is input, shape)
    "input_ids": (True, (1, 8)),
    "weight": (True, (4, 4)),
    "cache": (True, (1, 2, 64, 4)),
    "state": (True, (1, 3, 5)),
    "anchor": (False, (1,)),
    "hidden": (False, (1, 8, 4)),
    "next.cache": (False, (1, 2, 64, 4)),
    "next.state": (False, (1, 3, 5)),
}


class FakeEngine:
    num_io_tensors = len(TENSORS)
    device_memory_size_v2 = 100
    name = "fake"

    def get_tensor_name(self, index: int) -> str:
        return list(TENSORS)[index]

    def get_tensor_dtype(self, name: str) -> str:
        return "float"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return TENSORS[name][1]

    def get_tensor_mode(self, name: str) -> str:
        return "input" if TENSORS[name][0] else "output"


@dataclass
class FakeContext:
    addresses: dict[str, int] = field(default_factory=dict)
    runs: list[dict[str, int]] = field(default_factory=list)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def set_device_memory(self, address: int, size: int) -> None:
        assert size == FakeEngine.device_memory_size_v2

    def execute_async_v3(self, stream: int) -> bool:
        self.runs.append(dict(self.addresses))
        return True


class FakeDevice:
    stream = SimpleNamespace(sync=lambda: None)
    stream_address = 0

    def __init__(self) -> None:
        self.allocated: dict[int, int] = {}

    def allocate(self, size: int, what: str) -> Any:
        address = 1_000_000 * (1 + len(self.allocated))
        self.allocated[address] = size
        return SimpleNamespace(handle=address, size=size)


class FakeWeights:
    def address(self, name: str) -> int:
        assert name == "weight"
        return 77


def load(device: FakeDevice, context: FakeContext) -> LoadedEngine:
    library = fake_library(lambda data: None)
    runtime = TensorRTRuntime("fake", library, device, lambda engine: context)  # type: ignore[arg-type]
    return LoadedEngine(runtime, FakeEngine(), context)


ADDRESSES = {
    "input_ids": 1,
    "cache": 2,
    "next.cache": 2,
    "state": 3,
    "next.state": 4,
    "anchor": 5,
}


def test_the_first_run_writes_to_no_buffer_of_the_caller() -> None:
    device, context = FakeDevice(), FakeContext()
    load(device, context).bind(ADDRESSES, FakeWeights())  # type: ignore[arg-type]
    (run,) = context.runs
    assert (run["input_ids"], run["state"], run["weight"]) == (1, 3, 77)
    written = {run[name] for name, (is_input, _) in TENSORS.items() if not is_input}
    assert not written & set(ADDRESSES.values())
    # A cache that is updated in place must be so here, too.
    assert run["cache"] == run["next.cache"]
    (waste,) = written
    assert device.allocated[waste] >= 2 * 64 * 4 * 4


def test_after_it_every_tensor_has_the_address_given() -> None:
    context = FakeContext()
    load(FakeDevice(), context).bind(ADDRESSES, FakeWeights())  # type: ignore[arg-type]
    assert {name: context.addresses[name] for name in ADDRESSES} == ADDRESSES
    assert context.addresses["hidden"] not in ADDRESSES.values()


def test_a_second_binding_does_not_run() -> None:
    context = FakeContext()
    engine = load(FakeDevice(), context)
    for _ in range(3):
        engine.bind(ADDRESSES, FakeWeights())  # type: ignore[arg-type]
    assert len(context.runs) == 1


def test_a_weight_the_manifest_lacks_is_named(reference_artifact: Artifact) -> None:
    weights = DeviceWeights(FakeDevice(), reference_artifact)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"no weight target\.nothing.*build it again"):
        weights.address("target.nothing")


class FakeCache:
    def __init__(self) -> None:
        self.content = b"kernels"
        self.loaded: list[bytes] = []

    def serialize(self) -> bytes:
        return self.content

    def deserialize(self, content: bytes) -> bool:
        self.loaded.append(content)
        return True


def test_compiled_kernels_are_kept_between_runs(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kernels.bin"
    first, second = FakeCache(), FakeCache()
    for cache in (first, second):
        config = SimpleNamespace(create_runtime_cache=lambda cache=cache: cache, set_runtime_cache=lambda cache: None)
        kernels = KernelCache(path)
        kernels.attach(config)
        kernels.attach(config)
        kernels.save()
    assert (first.loaded, second.loaded) == ([], [b"kernels"])
    assert [file.name for file in path.parent.iterdir()] == ["kernels.bin"]
    second.content = b"more kernels"
    kernels.save()
    assert path.read_bytes() == b"more kernels"


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kernels = KernelCache(tmp_path / "file" / "kernels.bin")
    kernels.attach(SimpleNamespace(create_runtime_cache=FakeCache, set_runtime_cache=lambda cache: None))
    kernels.save()
