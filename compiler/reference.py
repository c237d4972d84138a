"""What an artifact is compared with: the source checkpoint in transformers, and the logits of a compiled stage.

torch and transformers are imported only when a checkpoint is opened: building needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from dfc.compiler.errors import BuildError

LOGITS = "logits"


def with_logits(model: bytes, choice: str = "anchor") -> bytes:
    """Return an ONNX model with one output more, `logits`: what the ArgMax behind the output `choice` reads.

    Raises:
        BuildError: no ArgMax lies behind that output.
    """
    proto = onnx.load_model_from_string(model)
    producers = {name: node for node in proto.graph.node for name in node.output}
    node = producers.get(choice)
    while node is not None and node.op_type != "ArgMax":
        node = producers.get(node.input[0]) if node.input else None
    if node is None:
        raise BuildError(f"the stage's output {choice!r} is not the largest of its logits, so they cannot be compared")
    proto.graph.node.append(onnx.helper.make_node("Identity", [node.input[0]], [LOGITS]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info(LOGITS, onnx.TensorProto.FLOAT, None))
    changed: bytes = proto.SerializeToString()
    return changed


def open_reference(checkpoint: Path) -> Callable[[Sequence[int]], NDArray[Any]]:
    """Load a checkpoint in float32 and return what gives the logits [T, V] of T tokens.

    Raises:
        BuildError: torch or transformers is missing, or transformers cannot load the checkpoint.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise BuildError(
            f"--against needs torch and transformers ({error}); install dfc with the extra 'reference'"
        ) from error
    # Their bars and advice would stand between our lines.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, local_files_only=True).eval()
    except (OSError, ValueError, KeyError) as error:
        raise BuildError(f"transformers cannot load {checkpoint}: {error}") from error

    def logits(token_ids: Sequence[int]) -> NDArray[Any]:
        with torch.inference_mode():
            output = model(torch.tensor([list(token_ids)])).logits[0]
        return np.asarray(output.float().numpy())

    return logits
