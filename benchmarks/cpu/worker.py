"""One contender in one process: it loads once, then decodes prompts on request.

Each has a process of its own because their libraries do not share an environment, and because thread pools of several
libraries in one process take each other's cores. Only the standard library is imported here: peers run this file in an
environment that has nothing of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Decoded:
    """The new tokens of one prompt and how long they took.

    `prefill_seconds` ends with the first new token, `decode_seconds` is for the others. `rounds` counts the target's
    calls after the prompt's.
    """

    token_ids: list[int]
    prefill_seconds: float
    decode_seconds: float
    rounds: int


Decode = Callable[[Sequence[int], int], Decoded]
"""Takes prompt ids and a number of new tokens; decodes greedily and does not stop at an end-of-sequence token."""


def limit_threads(threads: int) -> None:
    """Keep this process on `threads` cores; call it before the first numeric library is imported."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def serve(load: Callable[[], tuple[dict[str, str], Decode]]) -> None:
    """Load, then answer requests on standard input until it ends.

    `load` returns the versions of the libraries in use and the function that decodes.
    """
    # Libraries print; the answers keep the real standard output to themselves.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        versions, decode = load()
        print(json.dumps(versions), file=answers, flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            decoded = decode(request["prompt_ids"], request["new_tokens"])
            print(json.dumps(asdict(decoded)), file=answers, flush=True)


class WorkerError(Exception):
    """A contender's process ended; the message has the end of what it printed."""


class Worker:
    """The other end of `serve`: a context manager around the process."""

    def __init__(self, name: str, command: Sequence[str | Path]) -> None:
        self._name = name
        self._command = [str(part) for part in command]
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start the process and wait until it has loaded.

        Raises:
            WorkerError: it ended instead.
        """
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, encoding="utf-8"
        )
        self.versions = self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def decode(self, prompt_ids: Sequence[int], new_tokens: int) -> Decoded:
        """Decode one prompt.

        Raises:
            WorkerError: the process ended instead.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt_ids": list(prompt_ids), "new_tokens": new_tokens}) + "\n")
        self._process.stdin.flush()
        return Decoded(**self._answer())

    def processor_seconds(self) -> float:
        """Return the core seconds the process has used so far."""
        # The name in parentheses may hold spaces; user and system time are the 14th and 15th field of the whole line.
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            tail = "\n".join(self._log.read().splitlines()[-15:])
            raise WorkerError(f"{self._name} ended with exit code {self._process.returncode}:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer
