"""The multi-token prediction head, built from transformers' own decoder layer."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

MTP_FILE = "model-mtp.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class MTP(nn.Module):
    """One full-attention layer over fc(concat(embedding of the next token, hidden state)), both normed."""

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(size, eps=eps)
        self.norm = Qwen3_5RMSNorm(size, eps=eps)
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))])

    def forward(self, embedded: Tensor, hidden: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """embedded and hidden [rows, T, hidden_size], rope (cos, sin) for T positions; returns [rows, T,
        hidden_size]."""
        stem = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        return self.norm(self.layers[0](stem, position_embeddings=rope, attention_mask=None))


def add_to_target(directory: Path, mtp: MTP) -> None:
    """Puts the head's ``mtp.*`` tensors into a target checkpoint: a file of its own, the index and the config."""
    tensors = {f"mtp.{name}": tensor.contiguous().cpu() for name, tensor in mtp.state_dict().items()}
    save_file(tensors, directory / MTP_FILE, metadata={"format": "pt"})
    index_file = directory / INDEX_FILE
    if index_file.exists():
        index = json.loads(index_file.read_text())
    else:
        single = load_file(directory / "model.safetensors")
        total = sum(tensor.nbytes for tensor in single.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(single, "model.safetensors")}
    if MTP_FILE not in index["weight_map"].values():
        index["metadata"]["total_size"] += sum(tensor.nbytes for tensor in tensors.values())
    index["weight_map"] |= dict.fromkeys(tensors, MTP_FILE)
    index_file.write_text(json.dumps(index, indent=2))
    config = json.loads((directory / "config.json").read_text())
    config |= {"mtp_num_hidden_layers": len(mtp.layers), "mtp_use_dedicated_embeddings": False}
    (directory / "config.json").write_text(json.dumps(config, indent=2))
