"""`herma.db`: everything that cannot be rebuilt. SQL lives in the `.sql` files beside the Python that runs it."""
