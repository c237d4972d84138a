"""The page of `dfc bench` in a real browser: nothing overflows, every plot has marks, nothing is complained about."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import dfc

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
]

PROBE = """<script>
const marks = [...document.querySelectorAll("figure")].map(
  figure => [...figure.querySelectorAll(".mark")].filter(mark => mark.getBoundingClientRect().height > 1).length);
const wide = document.documentElement.scrollWidth > window.innerWidth;
document.title = `wide=${wide} marks=${marks}`;
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium, which .ci/run installs")
@pytest.mark.parametrize("width", [500, 1300])
def test_nothing_overflows_and_every_plot_has_marks(reference_artifact: Artifact, tmp_path: Path, width: int) -> None:
    page = tmp_path / "report.html"
    arguments = ("--draft-tokens", 3, "--max-new", 8, "--repetitions", 1)
    assert dfc("bench", reference_artifact.root, *arguments, "--html", page).returncode == 0
    page.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    shown = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=60)
    assert "CONSOLE" not in shown.stderr
    found = re.search(r"<title>wide=(\w+) marks=([\d,]+)</title>", shown.stdout)
    assert found is not None
    assert found[1] == "false"
    counts = [int(count) for count in found[2].split(",")]
    assert len(counts) == 4
    assert all(counts)
