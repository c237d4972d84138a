"""Authoring stage graphs: named inputs and outputs, weights in place, and the composite dfc operators."""
