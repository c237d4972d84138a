"""What publishing needs is loaded by publishing alone."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT


def test_other_commands_do_not_import_oras() -> None:
    code = "import sys, dfc.runtime.cli.main; print({'oras', 'requests', 'spdx_tools'} & sys.modules.keys())"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "set()"
