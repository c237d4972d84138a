"""Checkpoints to ONNX stage graphs to engines to one artifact; never imported by the runtime."""
