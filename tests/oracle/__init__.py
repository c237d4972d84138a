"""Float32 PyTorch oracle: what a target and its drafters must compute, written to be read, not to be fast."""
