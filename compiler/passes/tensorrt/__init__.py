"""Rules for TensorRT and TensorRT-RTX: standard operators at static shapes, bfloat16 products, float32 between them."""
