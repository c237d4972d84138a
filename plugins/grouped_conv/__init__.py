"""Grouped dynamic depthwise convolution over a draft block (semantics B.3)."""
