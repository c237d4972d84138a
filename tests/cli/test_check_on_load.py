"""`dfc run` refuses damaged files, and reads again only what looks changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from dfc.artifacts import hashing
from dfc.runtime.cli.main import cli
from tests.artifacts.samples import assert_one_sentence
from tests.cli.damage import flip_bit
from tests.cli.process import assert_fails, dfc

READ = [
    "manifest.json",
    "stages/draft_dflash2/onnxruntime/model.onnx",
    "stages/target_verify/onnxruntime/model.onnx",
    "tokenizer/chat_template.jinja",
    "tokenizer/generation_config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "weights/dflash2/model.safetensors",
    "weights/target/model-00001-of-00002.safetensors",
    "weights/target/model-00002-of-00002.safetensors",
]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache, and the names of the files that were hashed since."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names: list[str] = []

    def hash_files(paths: Sequence[Path], progress: hashing.Progress | None = None) -> list[str]:
        names.extend(path.name if len(path.parts) < 2 else "/".join(path.parts[-2:]) for path in paths)
        return hashing.hash_files(paths, progress)

    monkeypatch.setattr("dfc.artifacts.verification.hash_files", hash_files)
    return names


def run(root: Path, *options: object) -> None:
    """Run `dfc run` in this process."""
    arguments = ["run", root, "--prompt", "def f(", "--max-new", 2, *options]
    assert cli.main([str(argument) for argument in arguments], standalone_mode=False) == 0


@pytest.mark.parametrize("name", READ)
def test_a_flipped_bit_is_refused_at_load(copied: Path, hashed: list[str], name: str) -> None:
    for seed in range(8):
        sound = flip_bit(copied / name, f"{name} {seed}")
        with pytest.raises(click.ClickException) as caught:
            run(copied)
        assert_one_sentence(caught.value, str(copied), name)
        (copied / name).write_bytes(sound)


def test_a_flipped_bit_after_a_sound_run_is_refused(copied: Path, hashed: list[str]) -> None:
    run(copied)
    for name in READ:
        sound = flip_bit(copied / name, name)
        with pytest.raises(click.ClickException) as caught:
            run(copied)
        assert_one_sentence(caught.value, name)
        (copied / name).write_bytes(sound)
    run(copied)


def test_the_process_says_it_in_one_sentence(copied: Path) -> None:
    name = "weights/target/model-00002-of-00002.safetensors"
    flip_bit(copied / name, 3)
    assert_fails(dfc("run", copied, "--prompt", "a"), 1, name, "SHA-256", "--no-verify")


def test_a_later_run_reads_nothing_again(copied: Path, hashed: list[str]) -> None:
    run(copied)
    assert len(hashed) == len(READ) - 1
    hashed.clear()
    run(copied)
    assert hashed == []
    # Another drafter reads its own engine, and sampling another form of the target's.
    run(copied, "--spec", "mtp", "--draft-tokens", 2, "--temperature", 1)
    assert sorted(hashed) == ["onnxruntime/model.onnx", "onnxruntime/model.onnx", "target/model-mtp.safetensors"]
    hashed.clear()
    run(copied)
    assert hashed == []


def test_what_looks_changed_is_read_again(copied: Path, hashed: list[str]) -> None:
    run(copied)
    hashed.clear()
    weights = copied / "weights" / "dflash2" / "model.safetensors"
    os.utime(weights, (1_700_000_001, 1_700_000_001))
    run(copied)
    assert hashed == ["dflash2/model.safetensors"]
    hashed.clear()
    # The same bytes and the same time in a new file.
    shutil.copy2(weights, copied.parent / "other")
    os.replace(copied.parent / "other", weights)
    run(copied)
    assert hashed == ["dflash2/model.safetensors"]


def test_a_file_written_just_now_is_not_remembered(copied: Path, hashed: list[str]) -> None:
    os.utime(copied / "tokenizer" / "tokenizer.json")
    run(copied)
    hashed.clear()
    run(copied)
    assert hashed == ["tokenizer/tokenizer.json"]


def test_nothing_is_remembered_of_a_copy_or_inside_the_artifact(copied: Path, hashed: list[str]) -> None:
    before = sorted(copied.rglob("*"))
    run(copied)
    assert sorted(copied.rglob("*")) == before
    hashed.clear()
    shutil.copytree(copied, copied.parent / "copy")
    run(copied.parent / "copy")
    assert len(hashed) == len(READ) - 1


def test_no_verify_reads_no_file_to_check_it(copied: Path, hashed: list[str]) -> None:
    flip_bit(copied / "tokenizer" / "chat_template.jinja", 1)
    run(copied, "--no-verify")
    assert hashed == []


def test_damage_to_what_the_run_does_not_read_does_not_stop_it(copied: Path, hashed: list[str]) -> None:
    flip_bit(copied / "weights" / "target" / "model-mtp.safetensors", 1)
    run(copied, "--spec", "dflash2")
    with pytest.raises(click.ClickException, match="model-mtp"):
        run(copied, "--spec", "mtp")


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"\xff", b"[" * 100_000])
def test_a_damaged_memory_costs_a_check(copied: Path, hashed: list[str], tmp_path: Path, content: bytes) -> None:
    run(copied)
    (memory,) = (tmp_path / "cache" / "dfc" / "verified").iterdir()
    memory.write_bytes(content)
    hashed.clear()
    run(copied)
    assert len(hashed) == len(READ) - 1


def test_a_cache_that_cannot_be_written_stops_nothing(
    copied: Path, hashed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    run(copied)
    assert len(hashed) == len(READ) - 1
