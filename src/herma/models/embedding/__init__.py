"""Embedders: models on this machine, and endpoints. `choose.make_embedder` picks the one that is configured."""
