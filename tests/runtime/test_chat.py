"""A session of turns against decoding each rendered conversation from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.chat import ChatSession
from dfc.runtime.chat_template import load_chat_template
from dfc.runtime.decode import Decoder, Round
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Generation, Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.messages import Conversation
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.text import TextCodec
from tests.runtime.byte_level import tokens_of

REASONING = Path(__file__).with_name("templates") / "reasoning.jinja"
QUESTIONS = ("def f(x):", "    return x  # naïve", "class A:")
IM_END = 2


class Recording:
    """A decoder that notes the prompts it is given."""

    def __init__(self, decoder: Decoder) -> None:
        self.prompts: list[list[int]] = []
        self._decoder = decoder

    def __getattr__(self, name: str) -> object:
        return getattr(self._decoder, name)

    def start(self, prompt: list[int], keep: int = 0) -> int:
        self.prompts.append(list(prompt))
        return self._decoder.start(prompt, keep)


def open_decoder(artifact: Artifact, speculation: str) -> Decoder:
    plan = resolve(SpeculationRequest(speculation), artifact.manifest, RunContext("onnxruntime"))
    return load_decoder(artifact, plan, "onnxruntime")


@pytest.fixture(scope="module", params=["none", "mtp", "dflash2"])
def decoder(request: pytest.FixtureRequest, reference_artifact: Artifact) -> Decoder:
    return open_decoder(reference_artifact, request.param)


@pytest.fixture(scope="module")
def plain(reference_artifact: Artifact) -> Decoder:
    return open_decoder(reference_artifact, "none")


def open_session(
    artifact: Artifact,
    codec: TextCodec,
    decoder: Decoder,
    template: Path | None = None,
    limits: Limits = Limits(20, 4096, frozenset({IM_END})),  # noqa: B008 (frozen)
    stops: tuple[str, ...] = (),
) -> ChatSession:
    loaded = load_chat_template(artifact, template, {}, with_tools=False)
    return ChatSession(decoder, codec, loaded, limits, stops, Conversation(()))


def ask(session: ChatSession, question: str) -> tuple[str, Generation]:
    pieces: list[str] = []
    generation = session.ask(question, on_text=pieces.append)
    text = "".join(pieces)
    assert session.conversation.messages[-2:] == (
        {"role": "user", "content": question},
        {"role": "assistant", "content": text},
    )
    return text, generation


def test_turns_go_on_from_the_answers_tokens(
    reference_artifact: Artifact, codec: TextCodec, decoder: Decoder, plain: Decoder
) -> None:
    recording = Recording(decoder)
    session = open_session(reference_artifact, codec, recording)  # type: ignore[arg-type]
    template = load_chat_template(reference_artifact, None, {}, with_tools=False)
    known: list[int] = []
    for question in QUESTIONS:
        rendered = template.render(session.conversation.with_message("user", question))
        text, generation = ask(session, question)
        prompt = recording.prompts[-1]
        assert codec.decode_rendered(prompt) == rendered
        assert prompt[: len(known)] == known
        plain.start([3])
        expected = generate(plain, prompt, Limits(20, 4096, frozenset({IM_END})))
        assert generation.token_ids == expected.token_ids
        assert text == codec.decode(generation.token_ids)
        statistics = generation.statistics
        assert statistics.prompt_tokens == len(prompt)
        # All that was committed is there but for the last block, which may have been cut.
        if known:
            assert len(known) - 9 <= statistics.reused_tokens <= len(known)
        known = [*prompt, *generation.token_ids]


class Spelling:
    """Answers "word" with a token for every letter, and ends the turn or not."""

    reused = 0

    def __init__(self, codec: TextCodec, end: list[int]) -> None:
        self.prompts: list[list[int]] = []
        self.answer = tokens_of(codec, b"word", min) + end
        self._rest = iter(self.answer)

    def warm_up(self) -> None:
        """Nothing to do."""

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        self.prompts.append(list(prompt))
        self._rest = iter(self.answer)
        return next(self._rest)

    def step(self) -> Round:
        return Round(0, (), 0, (next(self._rest),))


@pytest.mark.parametrize(
    "end, limits", [([IM_END], Limits(9, 4096, frozenset({IM_END}))), ([], Limits(4, 4096, frozenset()))]
)
def test_an_answers_own_tokens_stay(
    reference_artifact: Artifact, codec: TextCodec, end: list[int], limits: Limits
) -> None:
    decoder = Spelling(codec, end)
    session = open_session(reference_artifact, codec, decoder, limits=limits)
    ask(session, "a")
    ask(session, "b")
    first, second = decoder.prompts
    assert codec.encode("word") != tokens_of(codec, b"word", min)
    assert second[: len(first) + len(decoder.answer)] == [*first, *decoder.answer]
    template = load_chat_template(reference_artifact, None, {}, with_tools=False)
    assert codec.decode_rendered(second) == template.render(Conversation(session.conversation.messages[:-1]))


def test_tokens_that_may_reach_across_are_made_anew(
    reference_artifact: Artifact, codec: TextCodec, tmp_path: Path
) -> None:
    """Without a special token after the answer, the text there may be one token with it."""
    file = tmp_path / "bare.jinja"
    file.write_text("{% for message in messages %}{{ message.content }} {% endfor %}")
    decoder = Spelling(codec, [])
    session = open_session(reference_artifact, codec, decoder, file, Limits(4, 4096, frozenset()))
    ask(session, "a")
    ask(session, "b")
    assert decoder.prompts == [codec.encode("a "), codec.encode("a word b ")]


def test_an_answer_that_is_written_anew_costs_no_more_than_itself(
    reference_artifact: Artifact, codec: TextCodec, decoder: Decoder, plain: Decoder
) -> None:
    """The template drops reasoning: the history up to the question is in the states all the same."""
    recording = Recording(decoder)
    session = open_session(reference_artifact, codec, recording, REASONING)  # type: ignore[arg-type]
    template = load_chat_template(reference_artifact, REASONING, {}, with_tools=False)
    said = 0
    for question in QUESTIONS:
        _, generation = ask(session, question)
        asked = Conversation(session.conversation.messages[:-1])
        prompt = codec.encode_rendered(template.render(asked))
        assert recording.prompts[-1] == prompt
        plain.start([3])
        assert generation.token_ids == generate(plain, prompt, Limits(20, 4096, frozenset({IM_END}))).token_ids
        assert generation.statistics.reused_tokens == said
        # What the next prompt begins with, whatever becomes of this answer.
        said = len(codec.encode_rendered(template.render(asked, add_generation_prompt=False)))
        assert said < len(prompt)


def test_a_stop_string_is_no_part_of_the_history(
    reference_artifact: Artifact, codec: TextCodec, decoder: Decoder
) -> None:
    whole, _ = ask(open_session(reference_artifact, codec, decoder), QUESTIONS[0])
    stop = whole[4:7]
    session = open_session(reference_artifact, codec, decoder, stops=(stop,))
    text, generation = ask(session, QUESTIONS[0])
    assert (text, generation.stop_reason) == (whole[: whole.index(stop)], stop)
    recording = Recording(decoder)
    session._decoder = recording  # type: ignore[assignment]
    ask(session, QUESTIONS[1])
    template = load_chat_template(reference_artifact, None, {}, with_tools=False)
    rendered = template.render(Conversation(session.conversation.messages[:-1]))
    assert recording.prompts == [codec.encode_rendered(rendered)]


def test_an_interrupted_answer_is_part_of_the_history(
    reference_artifact: Artifact, codec: TextCodec, decoder: Decoder, plain: Decoder
) -> None:
    recording = Recording(decoder)
    session = open_session(reference_artifact, codec, recording)  # type: ignore[arg-type]
    rounds: list[object] = []
    generation = session.ask(
        QUESTIONS[0], on_text=lambda text: None, interrupted=lambda: len(rounds) == 2, on_round=rounds.append
    )
    assert generation.finish_reason == "interrupted"
    answer = codec.decode(generation.token_ids)
    assert session.conversation.messages[-1] == {"role": "assistant", "content": answer}
    _, second = ask(session, QUESTIONS[1])
    plain.start([3])
    limits = Limits(20, 4096, frozenset({IM_END}))
    assert second.token_ids == generate(plain, recording.prompts[-1], limits).token_ids
    # The answer's last token alone had not been committed.
    assert second.statistics.reused_tokens == len(recording.prompts[0]) + len(generation.token_ids) - 1


def test_a_message_that_cannot_be_answered_changes_nothing(
    reference_artifact: Artifact, codec: TextCodec, decoder: Decoder
) -> None:
    limits = Limits(4, 40, frozenset())
    session = open_session(reference_artifact, codec, decoder, limits=limits)
    ask(session, "a")
    before = session.conversation
    with pytest.raises(RunError, match="no room"):
        session.ask("b c d e f " * 20, on_text=lambda text: None)
    assert session.conversation == before
    ask(session, "b")
