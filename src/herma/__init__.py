"""Herma: memory that any agent can carry across sessions."""

__version__ = "0.1.0"
