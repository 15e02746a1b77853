"""The mistake in the documented example, and what was put right."""

from __future__ import annotations

from typing import Any

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, dict[str, Any]] = {
    "documented": {
        "title": "The documented example, and its mistake",
        "twin": "corrected",
        "paragraphs": [
            "This is the page that enuSpace's documentation shows for AvgPool3DGrad. Run it: the block refuses.",
            "The pooling it differentiates has windows 4,3,2 on an input of [2][1][1][1][2] with SAME padding, so it has "
            "[2][1][1][1][2] outputs. A gradient holds one number for each output; the page feeds [2][2][2][2][2], 32 numbers.",
            "The documentation shows 1, 3, 5, 7 as the result. Those are the first four numbers of a buffer that was read "
            "with the wrong shape: no check stood in the way.",
            "Either cure makes the page run: give grad the shape [2][1][1][1][2], as the corrected twin does, or make "
            "orig_input_shape 2,8,6,4,2.",
        ],
    },
    "corrected": {
        "title": "The documented example, put right",
        "twin": "documented",
        "paragraphs": [
            "The same page with a gradient of shape [2][1][1][1][2]: one number for each output of the pooling.",
            "Every window lies over a single input and divides by the inputs it covers, which is one. So each number arrives "
            "undivided, and the result is 1, 3, 5, 7.",
        ],
    },
}
