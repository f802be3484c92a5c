"""Adapters to models: chat clients, embedders, exact token counters."""
