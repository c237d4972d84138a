"""A conversation in turns: each prompt takes in what the turns before have not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dfc.runtime.chat_template import ChatTemplate
from dfc.runtime.decode import Decoder, Round
from dfc.runtime.generate import Generation, Limits, generate
from dfc.runtime.history import common_length
from dfc.runtime.messages import Conversation
from dfc.runtime.stops import AnswerText
from dfc.runtime.text import TextCodec


class ChatSession:
    """One conversation with a decoder; `conversation` is what was said so far."""

    def __init__(
        self,
        decoder: Decoder,
        codec: TextCodec,
        template: ChatTemplate,
        limits: Limits,
        stop_strings: Sequence[str],
        conversation: Conversation,
    ) -> None:
        self.conversation = conversation
        self._decoder = decoder
        self._codec = codec
        self._template = template
        self._limits = limits
        self._stop_strings = tuple(stop_strings)
        self._text = ""
        self._token_ids: list[int] = []

    def ask(
        self,
        message: str | None,
        *,
        on_text: Callable[[str], None],
        interrupted: Callable[[], bool] = lambda: False,
        on_round: Callable[[Round], None] = lambda finished: None,
    ) -> Generation:
        """Answer a user's message (None: the conversation as it is) and add both to the conversation.

        Raises:
            RunError: the template refuses the conversation or it fills the context; the conversation is as before.
        """
        asked = self.conversation if message is None else self.conversation.with_message("user", message)
        text = self._template.render(asked)
        prompt = self._encode(text)
        said = self._codec.encode_rendered(self._template.render(asked, add_generation_prompt=False))
        answer = AnswerText(self._codec.stream(), self._stop_strings)
        generation = generate(
            self._decoder,
            prompt,
            self._limits,
            # Templates may write an answer's beginning otherwise once it is part of what was said.
            keep=common_length(prompt, said),
            watch=answer.add,
            interrupted=interrupted,
            on_tokens=lambda tokens: on_text(answer.take()),
            on_round=on_round,
        )
        on_text(answer.finish())
        self._text = text + self._codec.decode_rendered(generation.token_ids)
        self._token_ids = [*prompt, *generation.token_ids]
        self.conversation = asked.with_message("assistant", answer.text)
        return generation

    def _encode(self, text: str) -> list[int]:
        """Return the token ids of a rendered conversation, with the answers' own where the text goes on from them.

        An answer's tokens need not be those that its text has, and the decoder's state is of the former. No token
        reaches across a special one, so the tokens of what comes after it can be put behind those before.
        """
        if self._token_ids and text.startswith(self._text):
            rest = self._codec.encode_rendered(text[len(self._text) :])
            special = self._codec.special_tokens.values()
            if self._token_ids[-1] in special or (rest and rest[0] in special):
                return self._token_ids + rest
        return self._codec.encode_rendered(text)
