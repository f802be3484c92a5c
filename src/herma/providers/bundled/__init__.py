"""Providers that come with Herma, one module each."""
