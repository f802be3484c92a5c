"""The modules of herma.models:

client       ask a chat model: retry, deadline, cancel; the ChatModel interface
endpoints    which server, which key, a probe
openai       OpenAI-compatible servers
anthropic    Anthropic
embedder     local and endpoint embedders; the Embedder interface
bert         tokeniser, weights and ONNX graph of the local model
install      fetch and convert the local model
cli          herma models
"""
