"""The wheel, installed into an empty environment, works outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.paths import REFERENCE, ROOT

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    finished = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_the_wheel_builds_and_runs_elsewhere(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / "bin"
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(binaries / "python", "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[build,cpu]", cwd=tmp_path)
    assert "build" in run(binaries / "dfc", "--help", cwd=tmp_path)
    drafts = ("--draft", REFERENCE / "dflash2")
    run(binaries / "dfc", "build", REFERENCE / "target", *drafts, "-o", "artifact", cwd=tmp_path)
    report = json.loads(
        run(binaries / "dfc", "run", "artifact", "--prompt", "def f(", "--max-new", 8, "--json", cwd=tmp_path)
    )
    assert len(report["token_ids"]) == 8
    run(binaries / "dfc", "verify", "artifact", cwd=tmp_path)
    find = "import importlib.resources as r; print((r.files('dfc.artifacts') / 'manifest.schema.json').read_text())"
    assert "content_sha256" in json.loads(run(binaries / "python", "-c", find, cwd=tmp_path))["properties"]
    # Neither building nor running needs torch, and nothing generic lands in site-packages.
    installed = run(binaries / "python", "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    assert "torch==" not in installed
    assert "transformers==" not in installed
    purelib = run(binaries / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    names = {entry.name for entry in Path(purelib.strip()).iterdir()}
    assert "dfc" in names
    assert names.isdisjoint({"compiler", "plugins", "runtime", "artifacts", "tests"})


def test_runtime_and_artifacts_import_no_compiler() -> None:
    code = (
        "import sys, dfc.runtime.cli.main, dfc.runtime.load, dfc.artifacts;"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers', 'onnx', 'onnxscript')"
        " or m.startswith('dfc.compiler')];"
        "print(bad)"
    )
    assert run(sys.executable, "-c", code, cwd=ROOT).strip() == "[]"
