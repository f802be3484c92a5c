"""The modules of herma.evals:

data         data sets, measures, runs
evals        retrieval, self-exam, skills, summaries, scanner
cli          herma eval
"""
