"""Whether a drafter goes with a target."""

from __future__ import annotations

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.spec import DFlash2Spec, DFlashSpec, TargetSpec


def check_fits(draft: DFlashSpec, target: TargetSpec) -> None:
    """Check that a drafter was made for a target of this geometry.

    Raises:
        CheckpointError: it was not.
    """
    config = draft.directory / "config.json"
    for name in ("hidden_size", "vocab_size"):
        theirs, ours = getattr(draft, name), getattr(target, name)
        if theirs != ours:
            raise CheckpointError(f"{config}: {name} is {theirs}, but the target {target.directory} has {ours}")
    layers = len(target.layer_types)
    declared = draft.num_target_layers
    if declared is not None and declared != layers:
        raise CheckpointError(
            f"{config}: num_target_layers is {declared}, but the target {target.directory} has {layers} layers"
        )
    for layer in draft.target_layer_ids:
        if not 0 <= layer < layers:
            raise CheckpointError(
                f"{config}: target_layer_ids names layer {layer}, but the target {target.directory} has layers 0 to"
                f" {layers - 1}"
            )
    if draft.mask_token_id >= target.vocab_size:
        raise CheckpointError(
            f"{config}: mask_token_id is {draft.mask_token_id}, past the target's vocabulary of {target.vocab_size}"
        )
    if isinstance(draft, DFlash2Spec) and draft.selector_top_k > target.candidate_vocab_size:
        raise CheckpointError(
            f"{config}: selector_top_k is {draft.selector_top_k}, more than the target's {target.candidate_vocab_size}"
            " tokens"
        )
