"""The modules of herma.models:

client       ask a chat model: retry, deadline, cancel; the ChatModel interface
endpoints    which server, which key, a probe
openai       OpenAI-compatible servers
anthropic    Anthropic
embedder     local and endpoint embedders; the Embedder interface
install      fetch and convert embedding models
models       the models that the settings name
spending     meter, daily cap, pauses of background work; rows
local        find, read, run and write an embedding model on this machine
cli          herma models
"""
