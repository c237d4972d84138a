"""Walk over the candidates of a draft block's slots (semantics B.4)."""
