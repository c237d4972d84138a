"""DFlash2 drafters: DFlash with a convolution and a candidate selector (semantics B.1 and B.2)."""

from __future__ import annotations

from pathlib import Path

from dfc.compiler.checkpoint.block_drafter import (
    has_dflash2_fields,
    is_block_drafter,
    open_block_drafter,
    read_block_drafter,
)
from dfc.compiler.checkpoint.expected import Shapes, dflash2_shapes
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.spec import DFlash2Spec


def is_dflash2(top: Fields) -> bool:
    """Return whether a config describes a DFlash2 drafter: any field of its convolution or selector."""
    return is_block_drafter(top) and has_dflash2_fields(top)


def load_dflash2(directory: Path) -> DFlash2Spec:
    """Read and check a drafter checkpoint; only headers of the weight files are read.

    Raises:
        CheckpointError: something in it does not fit.
    """
    config = open_block_drafter(directory)
    fields, index, prefix = config.fields, config.index, config.prefix
    hidden_size, vocab_size = config.top.integer("hidden_size"), config.top.integer("vocab_size")
    taps, group_size = (fields.of(name).integer(name) for name in ("conv_kernel_size", "conv_group_size"))
    rank, top_k = (fields.of(name).integer(name) for name in ("selector_rank", "selector_top_k"))
    if hidden_size % group_size:
        raise fields.of("conv_group_size").error(
            "conv_group_size", f"is {group_size}, which does not divide {hidden_size}"
        )
    if top_k > vocab_size:
        raise fields.of("selector_top_k").error(
            "selector_top_k", f"is {top_k}, more than the vocabulary's {vocab_size}"
        )
    bare = f"{prefix}candidate_selector.predecessor_codebook"
    codebook_suffix = "" if bare in index or f"{bare}.weight" not in index else ".weight"

    def own_shapes(num_layers: int) -> Shapes:
        return dflash2_shapes(
            prefix=prefix,
            codebook_suffix=codebook_suffix,
            hidden_size=hidden_size,
            vocab_size=vocab_size,
            num_layers=num_layers,
            conv_kernel_size=taps,
            conv_group_size=group_size,
            selector_rank=rank,
        )

    shared = read_block_drafter(config, own_shapes)
    return DFlash2Spec(
        **vars(shared),
        conv_kernel_size=taps,
        conv_group_size=group_size,
        selector_rank=rank,
        selector_top_k=top_k,
    )
