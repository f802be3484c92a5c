"""Readers of what assistants keep on this machine, and of files that programs exported."""
