"""Stop strings: found across the borders of tokens, and never given out."""

from __future__ import annotations

from collections.abc import Sequence

from dfc.runtime.text import TextStream


class AnswerText:
    """The text of an answer while its tokens come: all before the first stop string.

    The first is the one that is complete first; of several complete at the same character, the longest. Text that
    may still turn out to begin a stop string is held back.
    """

    def __init__(self, stream: TextStream, stop_strings: Sequence[str] = ()) -> None:
        self.text = ""
        """What is certain so far."""
        self.matched: str | None = None
        """The stop string that ended the text."""
        self._stream = stream
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self._taken = 0

    def add(self, token: int) -> str | None:
        """Take in one more token and return the stop string that it completes."""
        self._append(self._stream.add([token]))
        return self.matched

    def take(self) -> str:
        """Return the text that became certain since the last call."""
        taken, self._taken = self._taken, len(self.text)
        return self.text[taken:]

    def finish(self) -> str:
        """Return what is left when no token follows: text held back, and an unfinished character."""
        self._append(self._stream.finish())
        if self.matched is None:
            self.text, self._held = self.text + self._held, ""
        return self.take()

    def _append(self, text: str) -> None:
        if self.matched is not None:
            return
        held = self._held + text
        found = [(held.find(stop) + len(stop), held.find(stop), stop) for stop in self._stop_strings if stop in held]
        if found:
            _, begin, self.matched = min(found)
            self.text, self._held = self.text + held[:begin], ""
            return
        certain = len(held) - max((_begun(held, stop) for stop in self._stop_strings), default=0)
        self.text, self._held = self.text + held[:certain], held[certain:]


def _begun(text: str, stop: str) -> int:
    """Return how many characters at the end of the text may begin the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if stop.startswith(text[-size:])), 0)
