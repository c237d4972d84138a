"""Which tokens a target has committed, and the states that it can go back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dfc.runtime.engine import Array
from dfc.runtime.states import States


class History:
    """The committed tokens of one sequence, and where a prompt that differs from them can continue.

    The recurrent state of a Gated DeltaNet layer cannot give tokens back. But the state before the target's last call
    still lies in the other buffer, and one more state may be kept as a copy on the host.
    """

    def __init__(self, states: States) -> None:
        self.tokens: list[int] = []
        self._states = states
        self._before_last = 0
        self._kept: tuple[int, Mapping[str, Array]] | None = None

    def reset(self) -> None:
        """Forget everything, the states too."""
        self.tokens.clear()
        self._before_last = 0
        self._kept = None
        self._states.reset()

    def add(self, tokens: Sequence[int]) -> None:
        """Note what one call of the target committed."""
        self._before_last = len(self.tokens)
        self.tokens.extend(tokens)

    def keep(self) -> None:
        """Keep a copy of the states as they are now, in the place of the one kept before."""
        self._kept = len(self.tokens), self._states.copy()

    def continue_to(self, prompt: Sequence[int]) -> int:
        """Go back as far as the prompt demands and return how many of its leading tokens the states hold.

        At least one token is left, whose call gives the next. Where tokens are given back, the first of them is the
        prompt's next one: a drafter may have seen it beside the token before it.
        """
        same = common_length(self.tokens, prompt)
        if same == len(self.tokens) < len(prompt):
            return same
        kept_length, kept = self._kept if self._kept is not None else (0, {})
        reachable = [length for length in (self._before_last, kept_length) if 0 < length < same]
        if not reachable:
            self.reset()
        elif max(reachable) == self._before_last:
            self._states.swap()
            self._cut(self._before_last)
        else:
            self._states.restore(kept)
            self._cut(kept_length)
        return len(self.tokens)

    def _cut(self, length: int) -> None:
        del self.tokens[length:]
        # The other buffer now holds a state of tokens that were given back, and so may the copy.
        self._before_last = length
        if self._kept is not None and self._kept[0] > length:
            self._kept = None


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many leading tokens are the same."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(left), len(right)))
