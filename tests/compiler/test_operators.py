"""The table of operators is what the command says today."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from dfc.compiler.build import BuildRequest, plan_build
from dfc.compiler.operators import stage_operators
from dfc.compiler.operators_table import way
from dfc.runtime.cli.operators import describe
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash, write_target
from tests.paths import REFERENCE, ROOT

FILE = ROOT / "docs" / "operators.md"
COMMAND = "dfc operators examples/reference/target --draft examples/reference/dflash2 > docs/operators.md"


@pytest.mark.slow
def test_the_file_is_what_the_command_writes() -> None:
    pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")
    found = describe(REFERENCE / "target", (REFERENCE / "dflash2",))
    written = FILE.read_text()
    difference = "\n".join(difflib.unified_diff(written.splitlines(), found.splitlines(), "file", "now", lineterm=""))
    assert written == found, f"stale: run {COMMAND}\n{difference}"


def test_dflash_has_no_operator_that_the_table_lacks(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", TargetGeometry())
    draft = write_dflash(tmp_path / "draft", TargetGeometry(), DraftGeometry())
    used = stage_operators(plan_build(BuildRequest(target, (draft,), tmp_path / "artifact")))
    assert any("draft_dflash" in stages for stages in used.values())
    text = FILE.read_text()
    assert [operator for operator in used if f"| `{operator}` |" not in text] == []


@pytest.mark.parametrize(
    ("operator", "became", "expected"),
    [
        ("Add", {"Add"}, "native"),
        ("Swish", {"com.microsoft::QuickGelu"}, "fused `com.microsoft::QuickGelu`"),
        ("Swish", {"Mul", "Sigmoid"}, "as `Mul`, `Sigmoid`"),
        ("dfc::Linear", {"Gemm", "Cast"}, "function body"),
        ("dfc::GroupedConv", {"dfc::GroupedConv"}, "plugin"),
        (
            "dfc::GroupedConv",
            {"dfc::GroupedConvAdd", "Cast"},
            "plugin `dfc::GroupedConvAdd`, with 1 standard operators",
        ),
        ("dfc::UsedRows", set(), "folded"),
    ],
)
def test_how_an_operator_is_taken(operator: str, became: set[str], expected: str) -> None:
    assert way(operator, became) == expected
