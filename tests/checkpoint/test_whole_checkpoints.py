"""The bundled checkpoints, and published geometries with holes for weights."""

from __future__ import annotations

import math
import time
from pathlib import Path

from dfc.compiler.checkpoint import check_fits, load_dflash2, load_target
from dfc.compiler.checkpoint.spec import AttentionSpec, DenseSpec, GatedDeltaNetSpec, MTPSpec, RopeSpec
from tests.oracle.sparse_checkpoints import write_27b_dflash2, write_27b_target
from tests.paths import REFERENCE


def test_the_bundled_checkpoints() -> None:
    target, draft = load_target(REFERENCE / "target"), load_dflash2(REFERENCE / "dflash2")
    check_fits(draft, target)
    assert (target.architecture, target.prefix, target.head) == ("Qwen3_5ForCausalLM", "model.", "lm_head.weight")
    assert (target.hidden_size, target.feed_forward, target.vocab_size) == (256, DenseSpec(768), 4096)
    assert target.attention == AttentionSpec(4, 2, 64)
    assert target.gated_delta_net == GatedDeltaNetSpec(4, 8, 32, 32, 4)
    assert (target.rms_norm_eps, target.rope.positions) == (1e-6, 8192)
    assert (draft.hidden_size, draft.intermediate_size, draft.vocab_size, draft.num_layers) == (256, 768, 4096, 3)
    assert (draft.attention, draft.rope) == (AttentionSpec(4, 2, 64), RopeSpec(1e6, 64, positions=8192))
    assert (draft.conv_kernel_size, draft.conv_group_size, draft.selector_rank, draft.selector_top_k) == (2, 16, 64, 16)
    assert target.mtp == MTPSpec(1)
    assert {location.file.name for location in target.tensors.values()} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model-mtp.safetensors",
    }
    assert target.layer_types == (("linear_attention",) * 3 + ("full_attention",)) * 2
    assert (target.candidate_vocab_size, target.eos_token_ids, target.storage_type) == (4096, (2,), "bfloat16")
    assert target.rope == RopeSpec(1e6, 16, positions=8192)
    assert (draft.block_size, draft.target_layer_ids, draft.mask_token_id) == (8, (1, 3, 5), 3)
    assert (draft.sliding_windows, draft.causal) == ((None,) * 3, (False,) * 3)
    assert len(draft.tensors) == 6 + 15 * 3
    for location in (target.tensors | draft.tensors).values():
        assert location.offset + location.length <= location.file.stat().st_size


def test_the_27b_geometry(tmp_path: Path) -> None:
    write_27b_target(tmp_path / "target", shards=12)
    write_27b_dflash2(tmp_path / "draft")
    # Time of this process alone: the machine may be shared.
    began = time.process_time()
    target, draft = load_target(tmp_path / "target"), load_dflash2(tmp_path / "draft")
    check_fits(draft, target)
    assert time.process_time() - began < 2
    assert (target.hidden_size, target.feed_forward, target.vocab_size) == (5120, DenseSpec(17408), 248320)
    assert (target.head, target.eos_token_ids, target.rope.positions) == ("lm_head.weight", (248046,), 262144)
    # Without a tokenizer every row may be proposed.
    assert target.candidate_vocab_size == 248320
    # Three tensors outside the layers, 14 a Gated DeltaNet layer, 11 an attention layer, and 4 + 11 of the MTP head.
    assert len(target.tensors) == 3 + 48 * 14 + 16 * 11 + 15
    assert sum(location.length for location in target.tensors.values()) > 50 * 10**9
    assert target.prefix == "model.language_model."
    assert target.layer_types.count("full_attention") == 16
    assert target.layer_types.count("linear_attention") == 48
    assert target.layer_types[3::4] == ("full_attention",) * 16
    assert target.attention == AttentionSpec(24, 4, 256)
    assert target.gated_delta_net == GatedDeltaNetSpec(16, 48, 128, 128, 4)
    assert target.gated_delta_net.conv_channels == 10240
    assert target.rope == RopeSpec(1e7, 64, positions=262144)
    assert target.mtp == MTPSpec(1)
    assert len({location.file for location in target.tensors.values()}) == 12
    assert len(draft.tensors) == 81
    # The published parameter count.
    assert sum(math.prod(location.shape) for location in draft.tensors.values()) == 1_924_404_480
    assert (draft.block_size, draft.target_layer_ids, draft.mask_token_id) == (8, (5, 19, 33, 47, 61), 248070)
    assert (draft.sliding_windows, draft.causal) == ((2048,) * 5, (False,) * 5)
