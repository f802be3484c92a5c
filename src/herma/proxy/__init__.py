"""Memory for programs that send the whole conversation with each request.

- `conversations` adds memory to a request and keeps what was said; `herma.wrap(client)` does so in a client of an SDK
- `server` does it for any tool whose base URL can be set: `herma serve` answers `/v1/chat/completions`
"""
