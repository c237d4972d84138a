"""Where the test data lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "examples" / "reference"
GOLDEN = ROOT / "tests" / "golden"
