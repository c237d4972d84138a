"""Greedy speculative rounds, in the format of ``tests/golden/reference_runs.json``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from tests.oracle.dflash import DFlash
from tests.oracle.dflash2 import DFlash2, LayerContext
from tests.oracle.mtp import MTP
from tests.oracle.target import Target

Propose = Callable[[int], list[int]]


class Round(TypedDict):
    """One draft-verify round: ``accepted`` counts the leading proposals the target agrees with, without the bonus."""

    anchor: int
    proposed: list[int]
    accepted: int


@dataclass(frozen=True)
class Run:
    """Greedy tokens of one prompt and the rounds each drafter needs to reach them."""

    greedy_ids: list[int]
    min_top2_margin: float
    rounds: dict[str, list[Round]]


def run(
    target: Target,
    prompt_ids: list[int],
    new_tokens: int,
    *,
    dflash: DFlash | None = None,
    dflash2: DFlash2 | None = None,
    block_size: int | None = None,
    mtp_drafts: int | None = None,
) -> Run:
    """Greedy continuation of ``prompt_ids`` and, per drafter given, its rounds (keys ``dflash``, ``dflash2``, ``mtp``).

    The last round may reach past ``new_tokens``; it is judged whole. Verification is against the greedy tokens
    themselves: the row behind an accepted prefix is the row plain greedy decoding has there.
    """
    blocks = [block_size or dflash.block_size] if dflash else []
    blocks += [block_size or dflash2.config.block_size] if dflash2 else []
    slots = max(2, *blocks, (mtp_drafts or 0) + 1)
    greedy = target.greedy(prompt_ids, new_tokens + slots)
    rounds: dict[str, list[Round]] = {}
    if dflash is not None:
        propose = dflash_proposer(dflash, prompt_ids + greedy.tokens, block_size)
        rounds["dflash"] = rounds_of(propose, prompt_ids, greedy.tokens, new_tokens)
    if dflash2 is not None:
        propose = dflash2_proposer(dflash2, prompt_ids + greedy.tokens, block_size)
        rounds["dflash2"] = rounds_of(propose, prompt_ids, greedy.tokens, new_tokens)
    if mtp_drafts is not None:
        propose = mtp_proposer(MTP(target), prompt_ids + greedy.tokens, mtp_drafts)
        rounds["mtp"] = rounds_of(propose, prompt_ids, greedy.tokens, new_tokens)
    return Run(greedy.tokens[:new_tokens], min(greedy.margins[:new_tokens]), rounds)


def rounds_of(propose: Propose, prompt_ids: list[int], greedy_ids: list[int], new_tokens: int) -> list[Round]:
    """Rounds until ``new_tokens`` are emitted; prefill emits the first token, which is the first anchor.

    ``propose(position)`` drafts behind the anchor at that absolute position. ``greedy_ids`` must reach a whole block
    past ``new_tokens``.
    """
    rounds: list[Round] = []
    emitted = 1
    while emitted < new_tokens:
        proposed = propose(len(prompt_ids) + emitted - 1)
        truth = greedy_ids[emitted : emitted + len(proposed)]
        accepted = 0
        while accepted < len(proposed) and proposed[accepted] == truth[accepted]:
            accepted += 1
        rounds.append(Round(anchor=greedy_ids[emitted - 1], proposed=proposed, accepted=accepted))
        emitted += accepted + 1
    return rounds


def dflash_proposer(dflash: DFlash, token_ids: list[int], block_size: int | None = None) -> Propose:
    """Drafts of DFlash along a fixed sequence: behind an anchor at s stand the features of rows 0..s-1."""
    features = dflash.target.forward(token_ids).features(dflash.target_layer_ids)
    return lambda position: dflash.propose(features[:position], token_ids[position], block_size)


def dflash2_proposer(dflash2: DFlash2, token_ids: list[int], block_size: int | None = None) -> Propose:
    """Drafts of DFlash2 along a fixed sequence: the context of an anchor at s is the features of rows 0..s-1."""
    features = dflash2.target.forward(token_ids).features(dflash2.config.target_layer_ids)
    context = dflash2.context(features)

    def propose(position: int) -> list[int]:
        before = [LayerContext(layer.keys[:, :position], layer.values[:, :position]) for layer in context]
        return dflash2.propose(before, token_ids[position], block_size).tokens

    return propose


def mtp_proposer(mtp: MTP, token_ids: list[int], drafts: int) -> Propose:
    """Drafts of MTP along a fixed sequence: an anchor at s has the replayed rows 0..s-1 behind it."""
    replay = mtp.replay(token_ids, mtp.target.forward(token_ids).final_hidden)
    return lambda position: mtp.propose(replay, position, drafts)


def mean_tokens_per_round(rounds: list[Round]) -> float:
    """Accepted drafts plus the bonus token, averaged over the rounds."""
    return sum(entry["accepted"] + 1 for entry in rounds) / len(rounds)
