"""Mixtures of experts: their fields, and experts that are stored one tensor each."""

from __future__ import annotations

from collections.abc import Iterator

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.expected import Shapes
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.weight import Array, ComputedTensor, read_stored
from dfc.compiler.checkpoint.safetensors_index import TensorIndex
from dfc.compiler.checkpoint.spec import MixtureSpec

FUSED = {".experts.gate_up_proj": ("gate_proj", "up_proj"), ".experts.down_proj": ("down_proj",)}
"""What the end of a fused tensor's name stands for: the parts of each expert, one behind the other."""


def read_mixture(config: Fields) -> MixtureSpec:
    """Read the sizes of a mixture.

    Raises:
        CheckpointError: a field is missing or does not fit.
    """
    experts = config.integer("num_experts")
    chosen = config.integer("num_experts_per_tok")
    if chosen > experts:
        raise config.error("num_experts_per_tok", f"is {chosen}, more than num_experts {experts}")
    # Some configs spell out that the chosen experts' weights sum to one; that is the only way there is here.
    config.require("norm_topk_prob", True, True)
    config.require("decoder_sparse_step", 1, 1)
    config.refuse("mlp_only_layers", "names layers without experts; every layer must have them")
    return MixtureSpec(
        num_experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.integer("moe_intermediate_size"),
        shared_intermediate_size=config.integer("shared_expert_intermediate_size"),
    )


def fuse_experts(index: TensorIndex, shapes: Shapes) -> tuple[Shapes, dict[str, ComputedTensor]]:
    """Return the shapes of what is stored as it is wanted, and the fused tensors to be made of single experts'.

    Raises:
        CheckpointError: an expert's tensor is missing, or its type or shape does not fit.
    """
    computed = {}
    for name, shape in shapes.items():
        suffix = next((suffix for suffix in FUSED if name.endswith(suffix)), None)
        if suffix is not None and name not in index:
            prefix = f"{name.removesuffix(suffix)}.experts"
            computed[name] = _fused(index, name, prefix, FUSED[suffix], shape)
    return {name: shape for name, shape in shapes.items() if name not in computed}, computed


def _fused(
    index: TensorIndex, name: str, prefix: str, parts: tuple[str, ...], shape: tuple[int, ...]
) -> ComputedTensor:
    experts, rows, columns = shape
    names = [f"{prefix}.{expert}.{part}.weight" for expert in range(experts) for part in parts]
    if names[0] not in index:
        raise CheckpointError(f"{index.directory} has neither the tensor {name} nor {names[0]}")
    stored = list(index.take(dict.fromkeys(names, (rows // len(parts), columns))).values())
    types = {location.dtype for location in stored}
    if len(types) > 1:
        raise CheckpointError(f"{index.directory}: the experts of {prefix} are stored as {' and '.join(sorted(types))}")

    def pieces() -> Iterator[Array]:
        for location in stored:
            yield read_stored(location)

    sources = tuple(sorted({location.file for location in stored}))
    return ComputedTensor(name, stored[0].dtype, shape, sources, pieces)
