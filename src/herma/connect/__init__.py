"""Connect agents to this memory: write the MCP entry and the hooks into their own configuration.

- `clients` is the table of clients, and says what is written for each
- `edits` changes JSON with comments, TOML and YAML, and leaves everything else in a file as it is
- `connect` plans, applies and takes back, and builds the plug-in bundles
"""
