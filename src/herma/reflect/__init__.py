"""What is learnt from what happened, after the reply and at a bounded price."""
