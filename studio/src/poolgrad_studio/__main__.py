"""`python -m poolgrad_studio`: the studio without the command line of poolgrad; for work on the client, with a fixed token."""

from __future__ import annotations

import argparse
import sys

from poolgrad.errors import PoolGradError

from .server import serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="poolgrad_studio", description=__doc__)
    parser.add_argument("page", nargs="?", help="a page (.svg, .json) or a folder; the current folder by default")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--token", help="for tests only: a token that can be guessed protects nothing")
    given = parser.parse_args()
    try:
        serve(given.page, port=given.port, browser=not given.no_browser, token=given.token)
    except PoolGradError as error:
        print(f"poolgrad studio: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
