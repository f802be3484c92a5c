"""Text from outside is untrusted: scan it before it is kept. Pure functions, linear in their input."""
