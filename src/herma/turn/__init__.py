"""What a turn takes: how much of each request was sent before, what the model's window holds, what it all costs."""
