"""Take everything along, or have it removed: `herma export`, the way back in, and `herma forget`."""
