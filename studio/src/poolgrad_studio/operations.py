"""All operations: importing this registers them."""

from . import ops_files, ops_pages, ops_run, ops_watch

__all__ = ["ops_files", "ops_pages", "ops_run", "ops_watch"]
