"""Stages of earlier builds are taken as they are while nothing that goes into them has changed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dfc.artifacts import open_artifact, verify
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.engines.backend import EngineOptions
from tests.artifacts.samples import content
from tests.cli.damage import flip_bit
from tests.cli.process import DFC, assert_fails, dfc
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash2, write_target


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    """A small target with MTP and DFlash2, to be built with an empty cache."""
    geometry = TargetGeometry()
    target = write_target(tmp_path / "target", geometry)
    draft = write_dflash2(tmp_path / "draft", geometry, DraftGeometry())
    return BuildRequest(target, (draft,), tmp_path / "artifact", cache=tmp_path / "stages", force=True)


def build(request: BuildRequest) -> tuple[list[str], list[str]]:
    """Build and return the names of the stages that were compiled, and of those that were not."""
    lines: list[str] = []
    build_artifact(request, lines.append)
    compiled = [line.removeprefix("stage ") for line in lines if line.startswith("stage ")]
    return compiled, [line.removeprefix("unchanged stage ") for line in lines if line.startswith("unchanged stage ")]


def test_a_second_build_compiles_nothing_and_gives_the_same_bytes(request_: BuildRequest) -> None:
    build(replace(request_, cache=None))
    without = content(request_.output)
    compiled, unchanged = build(request_)
    assert sorted(compiled) == sorted(open_artifact(request_.output).manifest.stages)
    assert unchanged == []
    assert content(request_.output) == without
    assert build(request_) == ([], compiled)
    assert content(request_.output) == without


def test_after_a_change_of_a_drafter_only_its_stages_are_compiled(request_: BuildRequest, tmp_path: Path) -> None:
    everything, _ = build(request_)
    geometry = DraftGeometry(intermediate_size=96)
    changed = replace(request_, drafts=(write_dflash2(tmp_path / "other", TargetGeometry(), geometry),))
    compiled, unchanged = build(changed)
    assert compiled == ["draft_dflash2", "draft_dflash2_sampling"]
    assert [*unchanged, *compiled] == everything


def test_other_weights_in_the_same_places_compile_nothing(request_: BuildRequest, tmp_path: Path) -> None:
    everything, _ = build(request_)
    before = content(request_.output)
    geometry = DraftGeometry(seed=7)
    changed = replace(request_, drafts=(write_dflash2(tmp_path / "other" / "draft", TargetGeometry(), geometry),))
    assert build(changed) == ([], everything)
    after = content(request_.output)
    assert [name for name in after if after[name] != before[name]] == [
        "manifest.json",
        "weights/dflash2/model.safetensors",
    ]


def test_another_context_compiles_all(request_: BuildRequest) -> None:
    everything, _ = build(replace(request_, max_context=64))
    assert build(replace(request_, max_context=96)) == (everything, [])


def test_other_options_code_or_library_are_another_key(request_: BuildRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from dfc.compiler import stage_cache
    from dfc.compiler.build import author_stages, plan_build
    from dfc.compiler.engines.backend import EngineRequest

    plan = plan_build(request_)
    stage = next(author_stages(plan))
    sizes = EngineRequest(plan.round_rows, plan.capacity, EngineOptions())

    def key(backend: object = plan.backend, request: EngineRequest = sizes) -> str:
        return stage_cache.stage_key(stage, backend, "onnxruntime", request)  # type: ignore[arg-type]

    keys = [
        key(),
        key(replace(plan.backend, library_version=lambda: "2")),
        key(replace(plan.backend, machine=lambda: "another GPU")),
        key(replace(plan.backend, prompt_rows=256)),
        key(request=replace(sizes, options=EngineOptions(optimization_level=1))),
    ]
    monkeypatch.setattr(stage_cache, "_sources_digest", lambda: "other code")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_damaged_entry_is_compiled_again(request_: BuildRequest) -> None:
    everything, _ = build(request_)
    before = content(request_.output)
    assert request_.cache is not None
    entries = sorted(request_.cache.iterdir())
    assert len(entries) == len(everything)
    for place, entry in enumerate(entries):
        flip_bit(entry, place)
    entries[0].write_bytes(b"")
    entries[1].write_bytes(b"[]\n")
    compiled, _ = build(request_)
    assert compiled == everything
    assert content(request_.output) == before
    assert build(request_) == ([], everything)


def test_a_cache_that_cannot_be_written_stops_nothing(request_: BuildRequest, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    compiled, _ = build(replace(request_, cache=tmp_path / "file" / "stages"))
    assert verify(open_artifact(request_.output)) == []
    assert compiled


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_build_goes_on_after_its_last_stage(request_: BuildRequest, tmp_path: Path, seed: int) -> None:
    everything, _ = build(replace(request_, cache=None))
    expected = content(request_.output)
    shutil.rmtree(request_.output)
    command = [str(DFC), "build", str(request_.target), "--draft", str(request_.drafts[0]), "-o", str(request_.output)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home")}
    stop = random.Random(seed).randrange(2, len(everything))
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        begun = [process.stderr.readline() for _ in range(stop)]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert all(line.startswith(b"stage ") for line in begun), begun
    assert not request_.output.exists()
    finished = dfc(*command[1:], environment=environment)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stderr.decode().splitlines()
    # The one that was begun last may have ended before the signal came.
    assert sum(line.startswith("unchanged stage ") for line in lines) >= stop - 1
    assert content(request_.output) == expected


def test_no_cache_neither_takes_nor_keeps(request_: BuildRequest, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    finished = dfc("build", request_.target, "-o", request_.output, "--no-cache", environment=environment)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(dfc("cache", "--json", environment=environment).stdout)
    assert report["kinds"].get("stages", {"entries": 0})["entries"] == 0


def test_the_cache_is_shown_and_pruned(request_: BuildRequest, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    stages = tmp_path / "home" / "dfc" / "stages"
    everything, _ = build(replace(request_, cache=stages))

    def shown() -> dict[str, int]:
        report = json.loads(dfc("cache", "--json", environment=environment).stdout)
        found: dict[str, int] = report["kinds"]["stages"]
        return found

    total = sum(path.stat().st_size for path in stages.iterdir())
    assert shown() == {"entries": len(everything), "bytes": total}
    assert f"{total}" in dfc("cache", environment=environment).stdout.decode()
    old, *others = sorted(stages.iterdir())
    os.utime(old, (1_700_000_000, 1_700_000_000))
    assert dfc("cache", "prune", "--days", 1, environment=environment).returncode == 0
    assert sorted(stages.iterdir()) == others
    limit = sum(path.stat().st_size for path in stages.iterdir()) // 2
    assert dfc("cache", "prune", "--megabytes", limit / 1e6, environment=environment).returncode == 0
    assert 0 < shown()["bytes"] <= limit
    assert dfc("cache", "prune", environment=environment).returncode == 0
    assert shown() == {"entries": 0, "bytes": 0}
    assert_fails(dfc("cache", "prune", "--days", -1, environment=environment), 2, "--days")
