"""Memory for other agents: the MCP server, and the hooks that clients run.

- `server` is `herma mcp`: tools, resources and prompts, over stdio and over HTTP
- `hook` is `herma hook`: it starts in milliseconds and asks `events`, which answers for every client
- `sessions` keeps what is known of each client's sessions, and collects what memory has for them
"""
