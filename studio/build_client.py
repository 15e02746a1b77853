"""The build hook: makes the client's static files, unless they are there already.

They are there in an sdist and after `make studio`; only a build from a fresh source tree needs Node.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildClient(BuildHookInterface[Any]):
    """Runs npm in web/: the packages of the lock file, then the build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / "src/poolgrad_studio/static/index.html").exists():
            return
        npm = shutil.which("npm")
        if npm is None or not (root / "web/package.json").exists():
            raise RuntimeError("the studio's client is not built and cannot be: install Node 20 or later, then run make studio")
        for command in (["install", "--no-save"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=root / "web", check=True)
