"""Measure search on labelled data and on the user's own history.

data         data sets and measures
retrieval    labelled questions through the real search; an exam over the own history
cli          herma eval
"""
