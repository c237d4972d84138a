"""Who runs: the peers and dfc's three ways to decode, each as the command of its worker."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import peers
from worker import Worker

Kind = Literal["transformers", "genai", "dfc"]


@dataclass(frozen=True)
class Contender:
    """One row of the comparison; `speculation` and `draft_tokens` are dfc's, "none" and 0 for the peers."""

    name: str
    kind: Kind
    speculation: str = "none"
    draft_tokens: int = 0


PLAIN = "dfc plain"
GENAI = "onnxruntime-genai"
CONTENDERS = (
    Contender("transformers", "transformers"),
    Contender(GENAI, "genai"),
    Contender(PLAIN, "dfc"),
    Contender("dfc mtp", "dfc", "mtp", 3),
    Contender("dfc dflash2", "dfc", "dflash2", 7),
)


def worker(contender: Contender, artifact: Path | None, threads: int) -> Worker:
    """Return the contender's worker, not started; the peers' environment is made when it is missing.

    Raises:
        PeerError: the peers cannot be installed or built.
    """
    if contender.kind == "transformers":
        command = [peers.python(), peers.HERE / "huggingface.py", peers.TARGET, threads]
    elif contender.kind == "genai":
        command = [peers.python(), peers.HERE / "genai.py", peers.genai_model(), threads]
    else:
        assert artifact is not None
        ours = (sys.executable, peers.HERE / "ours.py", artifact, threads)
        command = [*ours, contender.speculation, contender.draft_tokens]
    return Worker(contender.name, [str(part) for part in command])
