"""What a checkpoint declares, validated once and frozen: the only view of a config the rest of dfc has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dfc.compiler.checkpoint.quantisation.weight import ComputedTensor, QuantisedWeight

LayerType = Literal["linear_attention", "full_attention"]
StorageType = Literal["float32", "bfloat16", "float16", "float8_e4m3fn", "uint8", "int32"]


@dataclass(frozen=True)
class TensorLocation:
    """Where one tensor's bytes lie: ``length`` bytes at ``offset`` of a ``.safetensors`` file."""

    name: str
    file: Path
    offset: int
    length: int
    dtype: StorageType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class AttentionSpec:
    """Grouped-query attention: every ``num_heads // num_kv_heads`` query heads share a key/value head."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class LinearScaling:
    """All frequencies divided by ``factor``."""

    factor: float


@dataclass(frozen=True)
class ProportionalScaling:
    """Frequencies of the whole head divided by ``factor``, zero after the first ``rotated_pairs``."""

    factor: float
    rotated_pairs: int


@dataclass(frozen=True)
class Llama3Scaling:
    """Frequencies divided by ``factor`` where a wave turns less than ``low_frequency_factor`` times in
    ``original_positions``, as they are above ``high_frequency_factor``."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_positions: int


@dataclass(frozen=True)
class YarnScaling:
    """YaRN: frequencies divided by ``factor`` where a wave turns less than ``beta_slow`` times in
    ``original_positions``, as they are above ``beta_fast``; ``scales`` are mscale and mscale_all_dim, 0 without."""

    factor: float
    original_positions: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    attention_factor: float | None
    scales: tuple[float, float]


RopeScaling = LinearScaling | ProportionalScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True)
class RopeSpec:
    """Half-split (neox) rotary embedding of the first ``rotary_dim`` channels; inv_freq = theta ** (-2 i /
    rotary_dim), scaled. ``positions`` is how many the model has, None when the config does not say."""

    theta: float
    rotary_dim: int
    scaling: RopeScaling | None = None
    positions: int | None = None


@dataclass(frozen=True)
class GatedDeltaNetSpec:
    """Gated DeltaNet: value head j reads key head ``j // (num_value_heads // num_key_heads)``."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel_size: int

    @property
    def key_size(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def value_size(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_size + self.value_size


@dataclass(frozen=True)
class DenseSpec:
    """A gated feed-forward layer: ``down(silu(gate(x)) * up(x))``."""

    intermediate_size: int


@dataclass(frozen=True)
class MixtureSpec:
    """A mixture of experts: the ``experts_per_token`` likeliest of ``num_experts``, and a shared expert behind a gate.

    The sizes are those of one expert and of the shared one. Fused tensors: ``experts.gate_up_proj``
    [num_experts, 2 * intermediate_size, hidden], gate rows first, and ``experts.down_proj``
    [num_experts, hidden, intermediate_size].
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int


FeedForwardSpec = DenseSpec | MixtureSpec


@dataclass(frozen=True)
class MTPSpec:
    """Multi-token prediction head inside the target's checkpoint (``mtp.*``); every layer is full attention."""

    num_layers: int


@dataclass(frozen=True)
class TargetSpec:
    """A Qwen3.5-class text target; every layer's feed-forward is of the same kind.

    ``prefix`` is what stands before ``embed_tokens.weight`` in tensor names (``model.`` or ``model.language_model.``);
    ``head`` names the tensor the logits come from (the embedding when tied). ``candidate_vocab_size`` is the number of
    leading vocabulary rows that are real tokens; rows past it are padding. A weight stands in ``tensors``, quantised in
    ``quantised``, or in ``computed`` when the build has to write it.
    """

    family: Literal["qwen3_5"]
    directory: Path
    architecture: str
    prefix: str
    head: str
    hidden_size: int
    feed_forward: FeedForwardSpec
    vocab_size: int
    candidate_vocab_size: int
    layer_types: tuple[LayerType, ...]
    attention: AttentionSpec
    rope: RopeSpec
    gated_delta_net: GatedDeltaNetSpec
    rms_norm_eps: float
    storage_type: StorageType
    eos_token_ids: tuple[int, ...]
    mtp: MTPSpec | None
    tensors: dict[str, TensorLocation]
    quantised: dict[str, QuantisedWeight] = field(default_factory=dict)
    computed: dict[str, ComputedTensor] = field(default_factory=dict)


@dataclass(frozen=True)
class DFlashSpec:
    """A DFlash drafter: it drafts a block over the target's features.

    ``target_layer_ids`` are 0-based target decoder layers; a feature is that layer's output (post residual).
    ``sliding_windows[i]`` is layer i's window in tokens, or None for full attention; ``causal[i]`` its causality.
    """

    directory: Path
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    attention: AttentionSpec
    rope: RopeSpec
    rms_norm_eps: float
    attention_bias: bool
    num_layers: int
    block_size: int
    mask_token_id: int
    num_target_layers: int | None
    target_layer_ids: tuple[int, ...]
    sliding_windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    input_embedding_scale: float
    output_multiplier: float
    final_logit_softcapping: float | None
    storage_type: StorageType
    prefix: str
    tensors: dict[str, TensorLocation]


@dataclass(frozen=True)
class DFlash2Spec(DFlashSpec):
    """A DFlash2 drafter: a DFlash one with a convolution around every sublayer and a candidate selector."""

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int
