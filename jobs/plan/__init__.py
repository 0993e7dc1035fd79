"""A view's SELECT as a tree of relations, each column with a number of its own."""
