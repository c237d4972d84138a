"""A mixture of experts, written out expert by expert; and single experts' tensors as transformers wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.oracle.ops import swiglu


def mixture(tensors: dict[str, Tensor], prefix: str, x: Tensor, chosen: int) -> Tensor:
    """The experts' and the shared expert's sum for rows x [T, hidden]; experts are stored fused."""
    probabilities = (x @ tensors[f"{prefix}.gate.weight"].T).softmax(dim=-1)
    rows = []
    for row, of_experts in zip(x, probabilities, strict=True):
        best = of_experts.topk(chosen)
        total = torch.zeros_like(row)
        for share, expert in zip(best.values / best.values.sum(), best.indices, strict=True):
            gate, up = tensors[f"{prefix}.experts.gate_up_proj"][expert].chunk(2)
            total = total + share * swiglu(row, gate, up, tensors[f"{prefix}.experts.down_proj"][expert])
        rows.append(total)
    shared = swiglu(x, *(tensors[f"{prefix}.shared_expert.{part}_proj.weight"] for part in ("gate", "up", "down")))
    return torch.stack(rows) + (x @ tensors[f"{prefix}.shared_expert_gate.weight"].T).sigmoid() * shared


def fused(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with every layer's single experts joined."""
    single = [name for name in tensors if name.endswith(".experts.0.down_proj.weight")]
    joined = {name: tensor for name, tensor in tensors.items() if ".experts." not in name or "_proj.weight" not in name}
    for name in single:
        prefix = name.removesuffix(".0.down_proj.weight")
        count = sum(other.startswith(prefix) and other.endswith(".down_proj.weight") for other in tensors)
        gate, up, down = (
            torch.stack([tensors[f"{prefix}.{expert}.{part}_proj.weight"] for expert in range(count)])
            for part in ("gate", "up", "down")
        )
        joined[f"{prefix}.gate_up_proj"], joined[f"{prefix}.down_proj"] = torch.cat([gate, up], dim=1), down
    return joined
