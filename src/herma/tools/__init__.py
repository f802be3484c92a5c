"""What the model may call. Each tool is defined once; command line, MCP server and reference page derive from it."""

from herma.tools.registry import Tools

__all__ = ["Tools"]
