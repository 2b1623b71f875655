"""Some of the pipelines in plain PySpark, to see what a pipeline's file saves.

They do not do all that the file does: what is missing is said at the top of each.
"""
