"""The thin runtime: loads an artifact, resolves speculation once, decodes; needs neither torch nor transformers."""
