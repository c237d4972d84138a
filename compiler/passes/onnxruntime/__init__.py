"""Rules for onnxruntime: its contributed operators where they win."""
