"""External memories: guests that may be slow, broken or wrong, and never cost a turn more than their deadline."""
