"""Custom operators, one folder each: reference, function body in standard operators, CUDA kernel, TensorRT plugin."""
