"""The studio: average pooling that can be seen, wired and run in a browser.

`serve(folder)` starts it; `poolgrad studio` is the same from a shell. The graph runs here, in Python, by
`poolgrad.enuspace`; the page only draws. `PROTOCOL.md` says what travels between the two.
"""

from .server import serve

__all__ = ["__version__", "serve"]

__version__ = "0.1.0"
