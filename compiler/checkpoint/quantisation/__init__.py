"""Quantised checkpoints: one file a published format, all read into `QuantisedWeight`."""
