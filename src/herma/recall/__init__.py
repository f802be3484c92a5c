"""What a turn needs from the past: read a query, find, rank, show in context, and say how it went."""
