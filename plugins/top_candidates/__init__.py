"""The K most likely tokens of every row of logits (semantics B.4): what the selector walks over."""
