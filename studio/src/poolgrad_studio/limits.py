"""How much is taken from outside. Each refusal names its limit."""

from __future__ import annotations

__all__ = ["LIMITS", "MOST_BLOBS", "MOST_CONNECTIONS", "MOST_CYCLES", "MOST_DOCUMENTS", "MOST_PENDING"]

LIMITS = {
    "message": 8 << 20,  # bytes of a text frame
    "upload": 256 << 20,  # bytes of a file
    "elements": 1 << 26,  # of an array that comes in or that a block makes
    "rows": 1_000,  # of the watch table at once
    "points": 2_048,  # a side of a heat map, bins of a line
    "text": 20_000,  # characters of a property that travel with the page
}
MOST_BLOBS = 2 << 30
MOST_DOCUMENTS = 100
MOST_CONNECTIONS = 32
MOST_PENDING = 16
MOST_CYCLES = 1_000_000
