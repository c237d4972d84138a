"""The recipes for continuous integration: valid for their services, and every `dfc` command one that there is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.ci.commands import check_command, find_commands
from tests.paths import ROOT

WORKFLOW = ROOT / ".github/workflows/engines.yml"
ACTION = ROOT / ".github/actions/dfc-build/action.yml"
GITLAB = ROOT / "examples/ci/gitlab.yml"

COMMANDS = {
    WORKFLOW: ["pull", "diff", "diff", "bench"],
    ACTION: ["build", "verify", "push"],
    GITLAB: ["build", "verify", "bench", "push", "pull", "push"],
}


def scripts(node: Any) -> Iterator[str]:
    """Yield every script of a recipe, wherever it is."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script"):
                yield value if isinstance(value, str) else "\n".join(value)
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts(value)


@pytest.mark.parametrize("file", list(COMMANDS), ids=lambda file: file.name)
def test_every_command_is_one_that_there_is(file: Path) -> None:
    found = [words for script in scripts(yaml.safe_load(file.read_text())) for words in find_commands(script)]
    assert [check_command(words) for words in found] == COMMANDS[file]


def test_every_command_of_the_readme_is_one_that_there_is() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    found = [words for line in lines if line.startswith("    dfc ") for words in find_commands(line)]
    assert {"build", "run", "bench", "inspect", "verify", "diff", "push", "pull", "sign"} <= set(
        map(check_command, found)
    )


@pytest.mark.parametrize(
    "line",
    [
        "dfc biuld target -o artifact",
        "dfc build target --drafts other -o artifact",
        "dfc build target",
        "dfc build target -o artifact --backend tensorflow",
        "dfc build target other -o artifact",
        "if true; then dfc bench artifact --max-new none; fi",
        'options=(--renamed)\nx=$(dfc push artifact place.tar "${options[@]}") || true',
        "dfc verify artifact \\\n  --kee public.pem",
    ],
)
def test_a_command_that_dfc_would_not_take_is_found(line: str) -> None:
    (words,) = find_commands(line)
    with pytest.raises(click.UsageError):
        check_command(words)


@pytest.mark.parametrize(
    "file, schema",
    [(WORKFLOW, "vendor.github-workflows"), (ACTION, "vendor.github-actions"), (GITLAB, "vendor.gitlab-ci")],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_recipes_fit_the_schemas_of_their_services(file: Path, schema: str, tmp_path: Path) -> None:
    transform = ["--data-transform", "gitlab-ci"] if file == GITLAB else []
    tool = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", schema, *transform]
    # The schemas come with the tool: nobody listens where it would have to ask.
    environment = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    finished = subprocess.run([*tool, file], capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    bad = tmp_path / file.name
    bad.write_text(file.read_text().replace("script:", "scripts:").replace("run: ", "runs: "))
    finished = subprocess.run([*tool, bad], capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == 1, finished.stdout + finished.stderr


@pytest.mark.skipif(
    shutil.which("actionlint") is None,
    reason="needs the program actionlint, which its Python package would fetch from elsewhere",
)
def test_actionlint_has_nothing_to_say() -> None:
    finished = subprocess.run(["actionlint", "-shellcheck=", WORKFLOW], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_action_and_its_use_have_the_same_inputs() -> None:
    action = yaml.safe_load(ACTION.read_text())
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["engines"]["steps"]
    (used,) = [step for step in steps if step.get("uses") == "./.github/actions/dfc-build"]
    assert used["with"].keys() <= action["inputs"].keys()
    required = {name for name, entry in action["inputs"].items() if entry.get("required")}
    assert required <= used["with"].keys()
    text = ACTION.read_text()
    assert all(f"inputs.{name}" in text for name in action["inputs"])
