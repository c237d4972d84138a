"""From the canonical stage graph to the operators of one backend: one rule a file, each with its test beside the
others."""
