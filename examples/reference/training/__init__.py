"""Trains the reference checkpoints; see ``examples/reference/train.py``."""
