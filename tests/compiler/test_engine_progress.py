"""A builder's progress, and an interrupted build that does not wait for the library."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import onnx_ir as ir
import pytest

from dfc.compiler.engines import tensorrt_rtx
from dfc.compiler.engines.backend import EngineOptions
from dfc.compiler.engines.interruptible import run_interruptibly
from dfc.compiler.engines.tensorrt_builder import build_engine
from dfc.compiler.export.stage import StageBuilder

MAIN = threading.main_thread()


def interrupt() -> None:
    """Send Ctrl-C to this process."""
    assert MAIN.ident is not None
    signal.pthread_kill(MAIN.ident, signal.SIGINT)


def join_builders() -> None:
    for thread in threading.enumerate():
        if thread.name == "builder":
            thread.join(60)
            assert not thread.is_alive()


def test_the_result_and_the_exception_are_those_of_the_work() -> None:
    def fail(abandoned: threading.Event) -> None:
        raise ValueError("what went wrong")

    assert run_interruptibly(lambda abandoned: abandoned.is_set()) is False
    with pytest.raises(ValueError, match="what went wrong"):
        run_interruptibly(fail)


def test_an_interrupt_ends_the_wait_and_tells_the_work() -> None:
    done = threading.Event()

    def work(abandoned: threading.Event) -> None:
        interrupt()
        assert abandoned.wait(60)
        done.set()

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work)
    assert done.wait(60)


def product(name: str) -> ir.Model:
    """A graph that builds in a moment."""
    stage = StageBuilder(name, "target")
    x, y = (stage.input(name, ir.DataType.FLOAT, (8, 8)) for name in "xy")
    stage.output("z", stage.op.Relu(stage.op.MatMul(x, y)), ir.DataType.FLOAT, (8, 8))
    model = stage.finish().model
    for index, node in enumerate(model.graph):
        node.name = f"{node.op_type}_{index}"
    return model


def build(lines: list[str], log: Path, stop: bool = False) -> bytes:
    def progress(line: str) -> None:
        lines.append(line)
        if stop and len(lines) == 1:
            interrupt()

    library = tensorrt_rtx.load_library()
    options = EngineOptions(("8.9",), optimization_level=0)
    return build_engine(
        library, product("test"), "test", options, tensorrt_rtx.configure, log_file=log, progress=progress
    )


def test_phases_and_steps_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")
    lines: list[str] = []
    assert build(lines, tmp_path / "build.log")
    assert lines[0] == "building engine"
    counted = [line for line in lines if re.fullmatch(r"[a-z ]+, \d+ of \d+", line)]
    assert len(counted) > 5
    assert len({line.partition(",")[0] for line in lines}) > 3


def test_an_interrupted_build_stops_the_library_and_its_log(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")
    whole: list[str] = []
    log = tmp_path / "build.log"
    build(whole, tmp_path / "whole.log")
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        build(lines, log, stop=True)
    said = log.read_text()
    join_builders()
    assert log.read_text() == said
    # The library asks after every step, and the first one comes soon.
    assert len(lines) < len(whole) / 2
