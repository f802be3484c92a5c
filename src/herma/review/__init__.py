"""The modules of herma.review:

review       when a review is due, the queue, the three kinds of review, carrying out a proposal
proposal     prompts, the tool loop, reading a model's proposal
gate         what a review may write: durable, new, grounded, not from outside; "remember that …"
cli          herma learned, herma cost
rows         what a review is, when one is due; rows
"""
