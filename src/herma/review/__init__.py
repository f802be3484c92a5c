"""The modules of herma.review:

review       when to look back, the queue, the passes
proposal     the end-of-session proposal: ask, parse, carry out; prompts
gate         what a review may write: durable, new, grounded, not from outside
remember     "remember that …", in the user’s own words
spending     meter, daily cap, pauses of background work; rows
cli          herma review, herma cost
rows         values and rows that gate, proposal, remember and review share
"""
