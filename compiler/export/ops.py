"""The composite operators of the dfc domain: what a stage graph says, before a backend says how.

Every backend has one rule for each (`dfc.compiler.passes`). N is the batch, T the rows of a call, all float tensors are
float32 unless said otherwise. A state or cache that an operator returns is a new value; whether it shares the memory of
the old one is the backend's business.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.stage import DFC_DOMAIN

FLOAT = ir.DataType.FLOAT
INT64 = ir.DataType.INT64


def linear(op: OpBuilder, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    """Return ``x @ weight.T + bias``: x [.., in], weight [out, in], bias [out]."""
    inputs = (x, weight) if bias is None else (x, weight, bias)
    return _typed(op.Linear(*inputs, _domain=DFC_DOMAIN), FLOAT)


def dequantised(
    op: OpBuilder,
    parts: Sequence[ir.Value | None],
    *,
    kind: str,
    block_rows: int,
    block_columns: int,
) -> ir.Value:
    """Return a quantised weight in float32, the last axis its columns.

    The parts are values, scales, zero points, tensor scale and order, as `QuantisedWeight` says; leading axes of them
    may be others than the weight's rows. A product with it goes by way of `linear`: a backend that can reads the parts.
    """
    attributes = {"kind": kind, "block_rows": block_rows, "block_columns": block_columns}
    return _typed(op.Dequantised(*parts, **attributes, _domain=DFC_DOMAIN), FLOAT)


def is_dequantised(value: ir.Value | None) -> bool:
    """Return whether a value is what `dequantised` returned."""
    node = None if value is None else value.producer()
    return node is not None and (node.domain, node.op_type) == (DFC_DOMAIN, "Dequantised")


def dequantised_rows(op: OpBuilder, table: ir.Value, ids: ir.Value) -> ir.Value:
    """Return rows [.., K] of a quantised table, ids [..], without the rest of the table."""
    node = table.producer()
    assert node is not None
    values, scales, zero_points, *others = node.inputs
    rows = [None if part is None else op.Gather(part, ids, axis=0) for part in (values, scales, zero_points)]
    found = op.Dequantised(*rows, *others, _domain=DFC_DOMAIN)
    found.producer().attributes.update(node.attributes)
    return _typed(found, FLOAT)


def experts(
    op: OpBuilder,
    x: ir.Value,
    router_logits: ir.Value,
    gate_up: ir.Value,
    down: ir.Value,
    *,
    experts_per_token: int,
) -> ir.Value:
    """Return the weighted sum of the experts with the largest logits, for each row of x [N, T, H].

    router_logits [N, T, E]; gate_up [E, 2 * I, H], gate rows first; down [E, H, I]. An expert gives
    ``down @ (silu(gate @ x) * (up @ x))``; its weight is its softmax over the chosen experts' logits.
    """
    inputs = (x, router_logits, gate_up, down)
    return _typed(op.Experts(*inputs, experts_per_token=experts_per_token, _domain=DFC_DOMAIN), FLOAT)


def query_and_gate(
    op: OpBuilder, x: ir.Value, weight: ir.Value, *, num_heads: int, head_dim: int
) -> tuple[ir.Value, ir.Value]:
    """Return two projections [.., heads * head_dim] of x [.., in] whose weights are woven into one.

    weight [heads * 2 * head_dim, in]: each head's query rows stand before its gate rows (semantics E).
    """
    query, gate = op.QueryAndGate(x, weight, num_heads=num_heads, head_dim=head_dim, _domain=DFC_DOMAIN, _outputs=2)
    return _typed(query, FLOAT), _typed(gate, FLOAT)


def used_rows(op: OpBuilder, x: ir.Value, counts: ir.Value, *, axis: int, room: int = 0) -> ir.Value:
    """Return at least the first ``max(counts) + room`` rows along `axis`, in the order they have; counts [N] int64.

    Which rows come after those is the backend's choice: nothing may depend on them.
    """
    used = op.UsedRows(x, counts, axis=axis, room=room, _domain=DFC_DOMAIN)
    assert x.dtype is not None
    return _typed(used, x.dtype)


def cached_attention(
    op: OpBuilder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    key_cache: ir.Value,
    value_cache: ir.Value,
    lengths: ir.Value,
    valid: ir.Value,
    cosine: ir.Value,
    sine: ir.Value,
    *,
    num_heads: int,
    num_kv_heads: int,
    rotary_dim: int,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Rotate query and key, append key and value to the caches, and attend causally.

    query [N, T, heads * head_dim], key and value [N, T, kv_heads * head_dim], caches [N, kv_heads, C, head_dim];
    lengths and valid [N] int64: row t of a sequence stands at position ``lengths + t`` and counts when ``t < valid``.
    cosine and sine [C, rotary_dim / 2]: half-split rotation of the first rotary_dim channels. Returns the attention
    output [N, T, heads * head_dim] and both caches.
    """
    inputs = (query, key, value, key_cache, value_cache, lengths, valid, cosine, sine)
    attributes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "rotary_dim": rotary_dim}
    output, keys, values = op.CachedAttention(*inputs, **attributes, _domain=DFC_DOMAIN, _outputs=3)
    return _typed(output, FLOAT), _typed(keys, FLOAT), _typed(values, FLOAT)


def block_attention(
    op: OpBuilder,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    context_key: ir.Value,
    context_value: ir.Value,
    starts: ir.Value,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    causal: bool,
    window: int | None,
) -> ir.Value:
    """Attend from a block of B rows to the context before it and to the block itself.

    query [N, B, heads * head_dim], key and value [N, B, kv_heads * head_dim], context_key and context_value
    [N, P, kv_heads * head_dim], query and keys rotated already; starts [N] int64 <= P is the position of the block's
    first row and the number of context rows. Row j sees the whole block, or rows up to itself when `causal`. With a
    window it sees keys at positions greater than ``starts + j - window`` and less than ``starts + j + window`` only
    (semantics A.4).
    """
    attended = op.BlockAttention(
        query,
        key,
        value,
        context_key,
        context_value,
        starts,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        causal=int(causal),
        window=window or 0,
        _domain=DFC_DOMAIN,
    )
    return _typed(attended, FLOAT)


def causal_convolution(
    op: OpBuilder, x: ir.Value, weight: ir.Value, state: ir.Value, *, taps: int
) -> tuple[ir.Value, ir.Value]:
    """Depthwise causal convolution over rows, then SiLU.

    x [N, T, channels], weight [channels, 1, taps], state [N, taps - 1, channels]: the rows before. Returns
    the rows [N, T, channels] and the state after all of them.
    """
    output, next_state = op.CausalConvolution(x, weight, state, taps=taps, _domain=DFC_DOMAIN, _outputs=2)
    return _typed(output, FLOAT), _typed(next_state, FLOAT)


def gated_delta_net(
    op: OpBuilder,
    mixed: ir.Value,
    decay: ir.Value,
    beta: ir.Value,
    decay_scale: ir.Value,
    decay_bias: ir.Value,
    state: ir.Value,
    committed: ir.Value | None = None,
    *,
    num_key_heads: int,
) -> tuple[ir.Value, ir.Value]:
    """Run the gated delta rule (semantics E) over rows.

    mixed [N, T, 2 * key_size + value_size]: query, key, value by heads, not normalised; decay and beta [N, T, heads]:
    the raw projections a and b; decay_scale and decay_bias [heads]: A_log and dt_bias; state [N, heads, value_dim,
    key_dim]. Returns the output [N, T, heads, value_dim] and the state after the rows that `committed` [N, T, 1] bool
    names (all rows without it).
    """
    some = () if committed is None else (committed,)
    inputs = (mixed, decay, beta, decay_scale, decay_bias, state, *some)
    output, next_state = op.GatedDeltaNet(*inputs, num_key_heads=num_key_heads, _domain=DFC_DOMAIN, _outputs=2)
    return _typed(output, FLOAT), _typed(next_state, FLOAT)


def gated_rms_norm(op: OpBuilder, x: ir.Value, gate: ir.Value, weight: ir.Value, *, epsilon: float) -> ir.Value:
    """Return ``weight * rms_norm(x) * silu(gate)`` [N, T, heads * C]: x [N, T, heads, C], gate [N, T, heads * C],
    weight [C]."""
    return _typed(op.GatedRMSNorm(x, gate, weight, epsilon=epsilon, _domain=DFC_DOMAIN), FLOAT)


def grouped_convolution(
    op: OpBuilder,
    hidden: ir.Value,
    coefficients: ir.Value,
    base: ir.Value,
    residual: ir.Value | None = None,
    *,
    side: int,
    taps: int,
    group_size: int,
) -> ir.Value:
    """Grouped dynamic convolution over a block (semantics B.3), see `dfc.plugins.grouped_conv`."""
    inputs = (hidden, coefficients, base) if residual is None else (hidden, coefficients, base, residual)
    convolved = op.GroupedConv(*inputs, side=side, taps=taps, group_size=group_size, _domain=DFC_DOMAIN)
    return _typed(convolved, FLOAT)


def candidate_selector(
    op: OpBuilder,
    candidate_ids: ir.Value,
    candidate_logits: ir.Value,
    projected: ir.Value,
    predecessor_codebook: ir.Value,
    successor_codebook: ir.Value,
    anchor: ir.Value,
    *,
    max_slots: int,
) -> ir.Value:
    """Greedy walk over the candidates of each slot (semantics B.4), see `dfc.plugins.selector`; tokens [N, S] int64."""
    tokens = op.CandidateSelector(
        candidate_ids,
        candidate_logits,
        projected,
        predecessor_codebook,
        successor_codebook,
        anchor,
        max_slots=max_slots,
        _domain=DFC_DOMAIN,
    )
    return _typed(tokens, INT64)


def sampled_candidate_selector(
    op: OpBuilder,
    candidate_ids: ir.Value,
    candidate_logits: ir.Value,
    projected: ir.Value,
    predecessor_codebook: ir.Value,
    successor_codebook: ir.Value,
    anchor: ir.Value,
    temperature: ir.Value,
    uniforms: ir.Value,
    *,
    max_slots: int,
) -> tuple[ir.Value, ir.Value]:
    """The same walk, drawn by temperature [N] and uniforms [N, S]; tokens [N, S] int64 and q [N, S, K] float32."""
    tokens, q = op.CandidateSelector(
        candidate_ids,
        candidate_logits,
        projected,
        predecessor_codebook,
        successor_codebook,
        anchor,
        temperature,
        uniforms,
        max_slots=max_slots,
        _domain=DFC_DOMAIN,
        _outputs=2,
    )
    return _typed(tokens, INT64), _typed(q, FLOAT)


def top_candidates(op: OpBuilder, logits: ir.Value, *, k: int, vocab_size: int) -> tuple[ir.Value, ir.Value]:
    """Return the `k` largest of the first `vocab_size` logits [N, S, V] of each row, largest first, and their ids
    int64, both [N, S, k]; see `dfc.plugins.top_candidates`."""
    values, ids = op.TopCandidates(logits, k=k, vocab_size=vocab_size, _domain=DFC_DOMAIN, _outputs=2)
    return _typed(values, FLOAT), _typed(ids, INT64)


def add_counts(op: OpBuilder, counts: ir.Value, ids: ir.Value, amounts: ir.Value, *, vocab_size: int) -> ir.Value:
    """Return counts [N, vocab_size] with amounts [N, T] added at ids [N, T]."""
    return _typed(op.AddCounts(counts, ids, amounts, vocab_size=vocab_size, _domain=DFC_DOMAIN), FLOAT)


def keep_heaviest(op: OpBuilder, scores: ir.Value, weights: ir.Value, limit: ir.Value) -> ir.Value:
    """Return bool [N, J, V]: the scores [N, J, V] with less than `limit` [N, 1, 1] of weight above them.

    weights [N, J, V], not negative, or [1] for all. Scores nearer to each other than about 1e-7 of a row's range may
    count as equal.
    """
    return _typed(op.KeepHeaviest(scores, weights, limit, _domain=DFC_DOMAIN), ir.DataType.BOOL)


def _typed(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Say the type that no schema says, so that constants beside the value get it."""
    value.dtype = dtype
    return value
