"""How far a builder is, from the library's own progress monitor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_library import IProgressMonitor, Library

Progress = Callable[[str], None]
"""Takes what a builder does now, in a few words."""


def progress_monitor(library: Library, report: Progress, abandoned: threading.Event) -> IProgressMonitor:
    """Return a monitor that reports every phase and its steps, and stops the build once `abandoned` is set."""
    steps: dict[str, int] = {}

    def phase_start(monitor: IProgressMonitor, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        steps[phase_name] = num_steps
        report(phase_name.lower())

    def step_complete(monitor: IProgressMonitor, phase_name: str, step: int) -> bool:
        report(f"{phase_name.lower()}, {step + 1} of {steps[phase_name]}")
        return not abandoned.is_set()

    def phase_finish(monitor: IProgressMonitor, phase_name: str) -> None:
        steps.pop(phase_name, None)

    methods = {"phase_start": phase_start, "step_complete": step_complete, "phase_finish": phase_finish}
    made: IProgressMonitor = type("ProgressMonitor", (library.IProgressMonitor,), methods)()
    return made
