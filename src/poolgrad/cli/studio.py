"""`poolgrad studio`: average pooling in a browser; the package `poolgrad-studio` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .guard import need

__all__ = ["studio"]


def studio(
    page: Annotated[Path | None, typer.Argument(help="A page (.svg, .json) to open, or a folder; here by default.")] = None,
    port: Annotated[int, typer.Option(help="The port; any that is free by default.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
) -> None:
    """Place, wire and run average pooling in a browser; see its windows.

    It serves this computer alone, under an address that cannot be guessed, and touches files only below the page's folder.

    poolgrad studio page.svg
    """
    need("poolgrad_studio", "studio", "the studio").serve(page, port=port, browser=browser)
