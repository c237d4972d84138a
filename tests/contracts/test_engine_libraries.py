"""dfc's calls into TensorRT and TensorRT-RTX against the real bindings of each version, through mypy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contracts.libraries import LIBRARIES, ROOT, EngineLibrary, prepare
from tests.contracts.typecheck import FOLDERS, check, copy_sources
from tests.contracts.wrong_uses import WRONG_USES

# mypy's cache of a library is for one process at a time.
every_library = pytest.mark.parametrize(
    "library",
    [pytest.param(library, id=name, marks=pytest.mark.xdist_group(name)) for name, library in LIBRARIES.items()],
)


@every_library
def test_every_call_is_as_the_bindings_say(library: EngineLibrary, tmp_path: Path) -> None:
    copy_sources(tmp_path, {})
    assert check(library, tmp_path) == []


@every_library
def test_every_wrong_use_is_found(library: EngineLibrary, tmp_path: Path) -> None:
    """Without this the check could say nothing: a value of no known type may be used in any way."""
    wrong_lines: dict[tuple[str, int], str] = {}
    changed: dict[str, str] = {}
    files = {f"{module.removeprefix('dfc.').replace('.', '/')}.py" for module in library.modules}
    for use in WRONG_USES:
        if use.file not in files:
            continue
        text = changed.get(use.file) or (ROOT / use.file).read_text(encoding="utf-8")
        assert use.right in text, f"{use.file} has no {use.right!r} any more: {use.what} needs another example"
        wrong_lines[use.file, text[: text.index(use.right)].count("\n") + 1] = use.what
        changed[use.file] = text.replace(use.right, use.wrong, 1)
    copy_sources(tmp_path, changed)
    found = {(problem.file, problem.line) for problem in check(library, tmp_path)}
    assert len(wrong_lines) >= 19
    assert [what for line, what in wrong_lines.items() if line not in found] == []


@every_library
def test_no_signature_is_left_open(library: EngineLibrary) -> None:
    """Where the bindings' docstrings cannot be read, a method would take and give anything."""
    prepare(library)
    stub = "tensorrt/__init__.pyi" if library.name == "tensorrt" else "engine_library/bindings.pyi"
    text = (library.stubs / stub).read_text(encoding="utf-8")
    classes = "Builder|IBuilderConfig|OnnxParser|ParserError|Runtime|ICudaEngine|IExecutionContext|IRuntimeConfig"
    for name, body in re.findall(rf"^class ({classes})\b.*?:\n(.*?)(?=^\S)", text, re.DOTALL | re.MULTILINE):
        open_ones = re.findall(r"def (?!__)(\w+)\(self, \*args", body)
        # The one whose result is a type of C++ that Python does not have.
        assert set(open_ones) <= {"get_layer_output_tensor"}, name


def test_every_module_that_calls_an_engine_library_is_checked() -> None:
    checked = {module for library in LIBRARIES.values() for module in library.modules}
    calling = {
        f"dfc.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"(from|import) (engine_library|tensorrt\b)|\blibrary: Any", path.read_text(encoding="utf-8"))
    }
    # It loads them and calls nothing.
    assert calling - checked == {"dfc.plugins.libraries"}
