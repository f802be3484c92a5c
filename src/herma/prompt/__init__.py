"""L0: what the model sees. Pure: gets text as values, reads no file."""
