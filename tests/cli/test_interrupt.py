"""The first Ctrl-C is noted, the second ends."""

from __future__ import annotations

import signal

import pytest

from dfc.runtime.cli.interrupt import Interrupt


def test_the_second_one_is_raised_and_the_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert not interrupt.seen()
        signal.raise_signal(signal.SIGINT)
        assert interrupt.seen()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
