"""Speed and error of poolgrad beside the frameworks installed here: what `poolgrad bench` runs.

Nothing here is imported by the rest of the package. It needs the compiled core, which brings the floor.
"""
