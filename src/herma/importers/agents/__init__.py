"""Readers of what coding agents keep on this machine."""
