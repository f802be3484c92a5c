"""The modules of herma.agent:

loop         a model with tools in a session; events
mcp          tools of MCP servers
chat         herma chat: loop, slash commands, one-shot
terminal     show turns, read messages
"""
