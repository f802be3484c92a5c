"""Use Herma as the memory of an agent framework: one file a framework, on the framework's own interface.

Each module needs its framework, which `import herma` never loads. `items` is what they share: a transcript that keeps
a framework's own objects word for word, and recall as plain values.
"""
