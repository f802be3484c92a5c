"""Clients for language models: any OpenAI-compatible server, and Anthropic's. The libraries are loaded on first use."""
