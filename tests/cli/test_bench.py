"""`dfc bench` counts what the decoder does and writes one page that needs nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc


def test_every_figure_fits_the_others(reference_artifact: Artifact, tmp_path: Path) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "report.html"
    arguments = ("--draft-tokens", 3, "--context", 40, "--max-new", 8, "--repetitions", 2)
    finished = dfc("bench", reference_artifact.root, *arguments, "--json", figures, "--html", page)
    assert finished.returncode == 0, finished.stderr
    assert b"mtp 3" in finished.stdout
    measured = json.loads(figures.read_text())["measured"]
    names = ["plain", "dflash2 3", "mtp 3"]
    assert [(entry["name"], entry["context"]) for entry in measured] == [(n, c) for c in (0, 40) for n in names]
    for entry in measured:
        assert sum(entry["accepted_lengths"]) == entry["rounds"]
        accepted = sum(length * count for length, count in enumerate(entry["accepted_lengths"]))
        assert entry["accepted_per_round"] == pytest.approx(accepted / entry["rounds"])
        assert sum(entry["acceptance_by_position"]) == pytest.approx(entry["accepted_per_round"])
        assert entry["tokens_per_round"] == pytest.approx(1 + entry["accepted_per_round"])
        assert 0 < entry["decode"]["least"] <= entry["decode"]["median"] <= entry["decode"]["most"]
        assert entry["verify_ms"] > 0
        assert (entry["draft_ms"] > 0) == (entry["draft_tokens"] > 0)
        assert entry["host_ms"] > 0
    earlier = tmp_path / "earlier.json"
    for entry in measured:
        entry["decode"]["median"] /= 1e6
    earlier.write_text(json.dumps({"measured": measured[:-1]}))
    finished = dfc("bench", reference_artifact.root, *arguments, "--compare", earlier)
    rows = [line.split() for line in finished.stdout.decode().splitlines() if "-" in line and "(" in line]
    assert all(float(row[-1]) > 1e4 for row in rows[:-1])
    assert rows[-1][-1] == "new"
    assert len(rows) == len(measured)
    text = page.read_text()
    assert text.count("<figure>") == 4
    assert all(part.count('class="mark"') >= 3 for part in text.split("<figure>")[1:])
    assert "http" not in text
    assert "<script" not in text


def test_batches_give_the_tokens_of_all_sequences(reference_artifact: Artifact, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ("--draft-tokens", 3, "--batch-size", 3, "--batch-size", 2, "--max-new", 8, "--repetitions", 2)
    finished = dfc("bench", reference_artifact.root, *arguments, "--json", figures)
    assert finished.returncode == 0, finished.stderr
    assert b"tokens/s of all" in finished.stdout
    batches = json.loads(figures.read_text())["batches"]
    ways = [(entry["batch_size"], entry["name"]) for entry in batches]
    assert ways == [(size, name) for size in (2, 3) for name in ("plain", "dflash2 3", "mtp 3")]
    for entry in batches:
        assert 0 < entry["decode"]["least"] <= entry["decode"]["median"] <= entry["decode"]["most"]
        assert entry["tokens_per_round"] == pytest.approx(1 + entry["accepted_per_round"])
        assert 0 <= entry["accepted_per_round"] <= entry["draft_tokens"]
        # A call's tokens are those of every sequence; its time is a median, the rate a sum, so they are only near.
        each = entry["decode"]["median"] * entry["round_ms"] / 1e3 / entry["tokens_per_round"]
        assert entry["batch_size"] / 4 < each < entry["batch_size"] * 4
    assert all(entry["accepted_per_round"] > 0 for entry in batches if entry["draft_tokens"])


def test_a_context_that_does_not_fit_is_refused(reference_artifact: Artifact) -> None:
    assert_fails(dfc("bench", reference_artifact.root, "--context", 10**6), 1, "--context 1000000", "does not fit")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"measured": [{"name": "plain"}]}', '{"measured": 3}'])
def test_a_report_that_cannot_be_compared_with_is_refused(
    reference_artifact: Artifact, tmp_path: Path, text: str
) -> None:
    (tmp_path / "earlier.json").write_text(text)
    finished = dfc("bench", reference_artifact.root, "--compare", tmp_path / "earlier.json")
    assert_fails(finished, 1, "--compare", "earlier.json")


def test_a_report_in_no_directory_is_refused_before_measuring(reference_artifact: Artifact, tmp_path: Path) -> None:
    assert_fails(dfc("bench", reference_artifact.root, "--html", tmp_path / "no" / "x.html"), 2, "does not exist")
