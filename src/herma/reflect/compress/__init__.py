"""What happens when the context fills: the middle becomes a summary, and nothing leaves the transcript."""
