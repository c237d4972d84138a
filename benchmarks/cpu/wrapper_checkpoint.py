"""An fp32 copy of a text checkpoint in the form of the vision wrapper, the only one onnxruntime-genai's builder takes.

Run as `wrapper_checkpoint.py SOURCE DESTINATION` in the peers' environment. In fp32 because the builder adds the 1 of
the norms' 1 + w in the checkpoint's dtype.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

WRAPPER_ARCHITECTURE = "Qwen3_5ForConditionalGeneration"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
_TEXT_PREFIX = "model."
_WRAPPED_PREFIX = "model.language_model."

# Never run: the builder reads text tensors only, but the wrapper's configuration wants some vision part.
_VISION_CONFIG = {
    "model_type": "qwen3_5",
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [],
}


def wrapped_config(text: dict[str, Any]) -> dict[str, Any]:
    """Return the wrapper's config.json for the text model's, in float32."""
    nested = {key: value for key, value in text.items() if key not in ("architectures", "transformers_version")}
    # The copy has no MTP head: the baseline is plain decoding.
    nested.update(dtype="float32", mtp_num_hidden_layers=0, model_type="qwen3_5_text")
    return {
        "architectures": [WRAPPER_ARCHITECTURE],
        "model_type": "qwen3_5",
        "dtype": "float32",
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": nested,
        "vision_config": {**_VISION_CONFIG, "out_hidden_size": text["hidden_size"]},
    }


def wrapped_name(name: str) -> str:
    """Return the wrapper's name of a text tensor."""
    if name.startswith(_TEXT_PREFIX):
        return _WRAPPED_PREFIX + name.removeprefix(_TEXT_PREFIX)
    return name


def write_wrapper(source: Path, destination: Path) -> None:
    """Write the copy; `destination` is replaced.

    Raises:
        OSError: a file of `source` cannot be read.
    """
    import torch
    from safetensors.torch import load_file, save_file

    shutil.rmtree(destination, ignore_errors=True)
    destination.mkdir(parents=True)
    tensors = {}
    for shard in sorted(source.glob("*.safetensors")):
        for name, tensor in load_file(shard).items():
            if not name.startswith("mtp."):
                tensors[wrapped_name(name)] = tensor.to(torch.float32)
    save_file(tensors, destination / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (destination / "config.json").write_text(json.dumps(wrapped_config(config), indent=2), encoding="utf-8")
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, destination / name)


if __name__ == "__main__":
    write_wrapper(Path(sys.argv[1]), Path(sys.argv[2]))
