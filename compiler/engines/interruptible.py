"""Work that a library does for seconds without looking up, in a thread of its own, so that a signal ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def run_interruptibly(work: Callable[[threading.Event], T]) -> T:
    """Return what `work` returns, or raise what it raises.

    An exception that a signal brings while this waits is raised at once. `work` goes on then until it sees that the
    event it was given is set: nobody takes its result any more, and it may write nothing. A library's callbacks run in
    that thread as well, where no signal can raise an exception into C++.
    """
    outcome: Future[T] = Future()
    abandoned = threading.Event()

    def run() -> None:
        try:
            outcome.set_result(work(abandoned))
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: a process that was told to end does not wait for the library.
    thread = threading.Thread(target=run, name="builder", daemon=True)
    try:
        thread.start()
        return outcome.result()
    finally:
        abandoned.set()
