"""`dfc run --chat`, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import DFC, dfc

LONG = ("--ignore-eos", "--max-new", 6000)
PATIENCE = 60


def messages_of(*contents: str) -> bytes:
    """Return a conversation that the user begins."""
    roles = ("user", "assistant")
    return json.dumps(
        [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]
    ).encode()


def answer_to(artifact: Artifact, *contents: str) -> str:
    finished = dfc("run", artifact.root, "--messages", "-", "--max-new", 12, "--json", stdin=messages_of(*contents))
    text: str = json.loads(finished.stdout)["text"]
    return text


def test_piped_lines_are_answered_one_after_the_other(reference_artifact: Artifact, tmp_path: Path) -> None:
    first = answer_to(reference_artifact, "def f(x):")
    second = answer_to(reference_artifact, "def f(x):", first, "  class Ä:")
    finished = dfc(
        "run", reference_artifact.root, "--chat", "--max-new", 12, stdin="def f(x):\n\n  class Ä:\n/exit\nno\n".encode()
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.decode() == f"{first}\n{second}\n"
    summaries = finished.stderr.decode().splitlines()
    assert len(summaries) == 2
    assert all("prompt tokens taken in" in summary for summary in summaries)


def test_a_chat_goes_on_from_messages(reference_artifact: Artifact, tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    first = answer_to(reference_artifact, "def f(x):")
    file.write_bytes(messages_of("def f(x):"))
    arguments = ("run", reference_artifact.root, "--chat", "--messages", file, "--max-new", 12)
    assert dfc(*arguments).stdout.decode() == f"{first}\n"
    file.write_bytes(messages_of("def f(x):", first))
    second = answer_to(reference_artifact, "def f(x):", first, "b")
    assert dfc(*arguments, stdin=b"b").stdout.decode() == f"{second}\n"


def test_the_system_message_comes_first(reference_artifact: Artifact) -> None:
    file = json.dumps([{"role": "system", "content": "import os"}, {"role": "user", "content": "def f(x):"}]).encode()
    expected = dfc("run", reference_artifact.root, "--messages", "-", "--max-new", 12, stdin=file)
    finished = dfc(
        "run", reference_artifact.root, "--chat", "--system", "import os", "--max-new", 12, stdin=b"def f(x):"
    )
    assert finished.stdout == expected.stdout
    assert finished.stdout != f"{answer_to(reference_artifact, 'def f(x):')}\n".encode()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to end when the test does."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def start(started: list[subprocess.Popen[bytes]], *arguments: object, stdin: int = subprocess.PIPE) -> Any:
    command = [str(DFC), *map(str, arguments)]
    # Unbuffered: `communicate` does not see what a buffered reader has read ahead.
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    started.append(process)
    return process


def read(stream: IO[bytes], size: int) -> bytes:
    """Return exactly `size` bytes."""
    parts = b""
    while len(parts) < size:
        part = stream.read(size - len(parts))
        assert part, parts
        parts += part
    return parts


@pytest.mark.parametrize("speculation", ["none", "dflash2"])
def test_ctrl_c_ends_a_run_with_what_is_there(
    reference_artifact: Artifact, started: list[subprocess.Popen[bytes]], tmp_path: Path, speculation: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    options = ("--prompt", "def f(x):\n", "--spec", speculation, *LONG)
    process = start(started, "run", reference_artifact.root, *options, "--trace", trace)
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "tokens (interrupted)" in errors.decode()
    count = int(errors.decode().split(" tokens")[0])
    assert 0 < count < 6000
    whole = dfc("run", reference_artifact.root, *options, "--max-new", count)
    assert first + rest == whole.stdout
    accepted = [json.loads(line)["accepted"] for line in trace.read_text().splitlines()]
    assert count == 1 + sum(accepted) + len(accepted)


def test_ctrl_c_leaves_json_whole(
    reference_artifact: Artifact, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    options = ("--json", *LONG, "--prompt", "def f(x):\n", "--trace", tmp_path / "trace")
    process = start(started, "run", reference_artifact.root, *options)
    # Nothing is printed before the end; but the trace grows.
    deadline = time.monotonic() + PATIENCE
    while not any(file.stat().st_size for file in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    report = json.loads(output)
    assert report["finish_reason"] == "interrupted"
    assert [file.name for file in tmp_path.iterdir()] == ["trace"]
    assert len((tmp_path / "trace").read_text().splitlines()) == report["stats"]["rounds"]


def test_ctrl_c_ends_an_answer_and_not_the_session(
    reference_artifact: Artifact, started: list[subprocess.Popen[bytes]]
) -> None:
    process = start(started, "run", reference_artifact.root, "--chat", *LONG)
    process.stdin.write(b"def f(x):\n")
    process.stdin.flush()
    answer = read(process.stdout, 1)
    process.send_signal(signal.SIGINT)
    summary = process.stderr.readline().decode()
    assert "(interrupted)" in summary
    process.stdin.write(b"b\n")
    process.stdin.flush()
    # The answer before ends with a line end; the second one begins after it.
    count = int(summary.removeprefix("[").split(" tokens")[0])
    whole = dfc(
        "run", reference_artifact.root, "--messages", "-", *LONG, "--max-new", count, stdin=messages_of("def f(x):")
    ).stdout
    answer += read(process.stdout, len(whole) - 1)
    assert answer == whole
    read(process.stdout, 1)
    process.send_signal(signal.SIGINT)
    summary = process.stderr.readline().decode()
    assert "(interrupted)" in summary
    taken, _, total = summary.split(", ")[-1].split()[:3]
    assert 0 < int(taken) < int(total)
    process.stdin.close()
    assert process.wait(timeout=PATIENCE) == 0


def test_at_a_terminal(reference_artifact: Artifact, started: list[subprocess.Popen[bytes]]) -> None:
    """Typed lines, a Ctrl-C between answers, a message that does not fit, and Ctrl-D."""
    controller, terminal = pty.openpty()
    process = start(started, "run", reference_artifact.root, "--chat", "--max-new", 12, stdin=terminal)
    os.close(terminal)
    expect(process.stderr, "> ")
    os.write(controller, b"def f(x):\n")
    expect(process.stderr, "> ")
    process.send_signal(signal.SIGINT)
    expect(process.stderr, "Ctrl-D ends\n> ")
    for _ in range(10):
        # A terminal takes lines of at most 4,095 bytes.
        os.write(controller, b"1 2 3 4 5 6 7 8 9 " * 200 + b"\n")
        if "no room" in expect(process.stderr, "> "):
            break
    else:
        pytest.fail("the context was never full")
    os.write(controller, b"\x04")
    output, errors = process.communicate(timeout=PATIENCE)
    os.close(controller)
    assert process.returncode == 0, errors
    assert output.decode().startswith(answer_to(reference_artifact, "def f(x):") + "\n")


def test_at_a_terminal_that_shows_the_answers(
    reference_artifact: Artifact, started: list[subprocess.Popen[bytes]]
) -> None:
    controller, terminal = pty.openpty()
    command = [str(DFC), "run", str(reference_artifact.root), "--chat", "--max-new", "12"]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL)
    started.append(process)
    os.close(terminal)
    shown = b""
    for line in (b"def f(x):\n", b"/exit\n"):
        while not shown.endswith(b"> "):
            shown += os.read(controller, 1)
        os.write(controller, line)
        shown += b"|"
    assert process.wait(timeout=PATIENCE) == 0
    os.close(controller)
    answer = answer_to(reference_artifact, "def f(x):")
    assert answer in shown.split(b"|")[1].decode().replace("\r\n", "\n")


def expect(stream: IO[bytes], end: str) -> str:
    """Read until the text ends so."""
    text = b""
    while not text.endswith(end.encode()):
        text += read(stream, 1)
    return text.decode()
