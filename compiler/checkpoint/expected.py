"""Names and shapes of the tensors that each model needs (semantics B.2, D and E)."""

from __future__ import annotations

from dfc.compiler.checkpoint.spec import (
    AttentionSpec,
    DenseSpec,
    FeedForwardSpec,
    GatedDeltaNetSpec,
    LayerType,
    MixtureSpec,
)

Shapes = dict[str, tuple[int, ...]]


def target_shapes(
    *,
    prefix: str,
    hidden_size: int,
    feed_forward: FeedForwardSpec,
    vocab_size: int,
    layer_types: tuple[LayerType, ...],
    attention: AttentionSpec,
    gated_delta_net: GatedDeltaNetSpec,
    separate_head: bool,
) -> Shapes:
    """Return what the target needs without its MTP head."""
    shapes: Shapes = {
        f"{prefix}embed_tokens.weight": (vocab_size, hidden_size),
        f"{prefix}norm.weight": (hidden_size,),
    }
    if separate_head:
        shapes["lm_head.weight"] = (vocab_size, hidden_size)
    for index, layer_type in enumerate(layer_types):
        layer = f"{prefix}layers.{index}"
        shapes |= _norms_and_feed_forward(layer, hidden_size, feed_forward)
        if layer_type == "full_attention":
            shapes |= _gated_attention(f"{layer}.self_attn", hidden_size, attention)
        else:
            shapes |= _gated_delta_net(f"{layer}.linear_attn", hidden_size, gated_delta_net)
    return shapes


def mtp_shapes(*, num_layers: int, hidden_size: int, feed_forward: FeedForwardSpec, attention: AttentionSpec) -> Shapes:
    """Return what the MTP head needs besides the target's embedding and head."""
    shapes: Shapes = {"mtp.fc.weight": (hidden_size, 2 * hidden_size)}
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        shapes[f"mtp.{norm}.weight"] = (hidden_size,)
    for index in range(num_layers):
        shapes |= _norms_and_feed_forward(f"mtp.layers.{index}", hidden_size, feed_forward)
        shapes |= _gated_attention(f"mtp.layers.{index}.self_attn", hidden_size, attention)
    return shapes


def block_drafter_shapes(
    *,
    prefix: str,
    hidden_size: int,
    intermediate_size: int,
    num_layers: int,
    num_features: int,
    attention: AttentionSpec,
    attention_bias: bool,
) -> Shapes:
    """Return what DFlash and DFlash2 drafters need: all that DFlash does."""
    shapes: Shapes = {
        f"{prefix}fc.weight": (hidden_size, num_features * hidden_size),
        f"{prefix}hidden_norm.weight": (hidden_size,),
        f"{prefix}norm.weight": (hidden_size,),
    }
    queries, keys = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    projections = {
        "q_proj": (queries, hidden_size),
        "k_proj": (keys, hidden_size),
        "v_proj": (keys, hidden_size),
        "o_proj": (hidden_size, queries),
    }
    for index in range(num_layers):
        layer = f"{prefix}layers.{index}"
        shapes |= _norms_and_feed_forward(layer, hidden_size, DenseSpec(intermediate_size))
        for name, shape in projections.items():
            shapes[f"{layer}.self_attn.{name}.weight"] = shape
            if attention_bias:
                shapes[f"{layer}.self_attn.{name}.bias"] = shape[:1]
        for name in ("q_norm", "k_norm"):
            shapes[f"{layer}.self_attn.{name}.weight"] = (attention.head_dim,)
    return shapes


def dflash2_shapes(
    *,
    prefix: str,
    codebook_suffix: str,
    hidden_size: int,
    vocab_size: int,
    num_layers: int,
    conv_kernel_size: int,
    conv_group_size: int,
    selector_rank: int,
) -> Shapes:
    """Return what a DFlash2 drafter needs beyond a DFlash one."""
    selector = f"{prefix}candidate_selector"
    shapes: Shapes = {
        f"{selector}.hidden_projection.weight": (selector_rank, hidden_size),
        f"{selector}.predecessor_codebook{codebook_suffix}": (vocab_size, selector_rank),
        f"{selector}.successor_codebook{codebook_suffix}": (vocab_size, selector_rank),
    }
    coefficients = 2 * conv_kernel_size * (hidden_size // conv_group_size)
    for index in range(num_layers):
        for name in ("attention_conv", "mlp_conv"):
            convolution = f"{prefix}layers.{index}.{name}"
            shapes[f"{convolution}.base_kernel"] = (2, conv_kernel_size, hidden_size)
            shapes[f"{convolution}.kernel_projection.weight"] = (coefficients, hidden_size)
    return shapes


def _norms_and_feed_forward(layer: str, hidden_size: int, feed_forward: FeedForwardSpec) -> Shapes:
    norms = ("input_layernorm", "post_attention_layernorm")
    shapes: Shapes = {f"{layer}.{norm}.weight": (hidden_size,) for norm in norms}
    if isinstance(feed_forward, DenseSpec):
        return shapes | _mlp(f"{layer}.mlp", hidden_size, feed_forward.intermediate_size)
    return shapes | _mixture(f"{layer}.mlp", hidden_size, feed_forward)


def _mlp(prefix: str, hidden_size: int, intermediate_size: int) -> Shapes:
    return {
        f"{prefix}.gate_proj.weight": (intermediate_size, hidden_size),
        f"{prefix}.up_proj.weight": (intermediate_size, hidden_size),
        f"{prefix}.down_proj.weight": (hidden_size, intermediate_size),
    }


def _mixture(prefix: str, hidden_size: int, mixture: MixtureSpec) -> Shapes:
    experts, width = mixture.num_experts, mixture.intermediate_size
    return {
        f"{prefix}.gate.weight": (experts, hidden_size),
        f"{prefix}.experts.gate_up_proj": (experts, 2 * width, hidden_size),
        f"{prefix}.experts.down_proj": (experts, hidden_size, width),
        f"{prefix}.shared_expert_gate.weight": (1, hidden_size),
        **_mlp(f"{prefix}.shared_expert", hidden_size, mixture.shared_intermediate_size),
    }


def _gated_attention(prefix: str, hidden_size: int, attention: AttentionSpec) -> Shapes:
    queries, keys = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    return {
        f"{prefix}.q_proj.weight": (2 * queries, hidden_size),
        f"{prefix}.k_proj.weight": (keys, hidden_size),
        f"{prefix}.v_proj.weight": (keys, hidden_size),
        f"{prefix}.o_proj.weight": (hidden_size, queries),
        f"{prefix}.q_norm.weight": (attention.head_dim,),
        f"{prefix}.k_norm.weight": (attention.head_dim,),
    }


def _gated_delta_net(prefix: str, hidden_size: int, geometry: GatedDeltaNetSpec) -> Shapes:
    return {
        f"{prefix}.in_proj_qkv.weight": (geometry.conv_channels, hidden_size),
        f"{prefix}.in_proj_z.weight": (geometry.value_size, hidden_size),
        f"{prefix}.in_proj_a.weight": (geometry.num_value_heads, hidden_size),
        f"{prefix}.in_proj_b.weight": (geometry.num_value_heads, hidden_size),
        f"{prefix}.conv1d.weight": (geometry.conv_channels, 1, geometry.conv_kernel_size),
        f"{prefix}.A_log": (geometry.num_value_heads,),
        f"{prefix}.dt_bias": (geometry.num_value_heads,),
        f"{prefix}.norm.weight": (geometry.value_head_dim,),
        f"{prefix}.out_proj.weight": (hidden_size, geometry.value_size),
    }
