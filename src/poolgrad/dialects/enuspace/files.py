"""Pages on disk: the file's ending says which form it has, and its `.dat` lies beside it."""

from __future__ import annotations

from pathlib import Path

from .export import load, read_document, write_json
from .page import Page
from .project import Project, read_project
from .svg import read_svg, write_svg
from .xml import MOST_BYTES, FileError

__all__ = ["open_page", "open_pages", "save_page"]

MOST_DATA = 1 << 31


def _bytes(path: Path, most: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > most:
            raise FileError(f"{path.name} has {size} bytes; at most {most} are read")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None


def open_page(path: str | Path) -> Page:
    """The page in an `.svg`, an exported `.json`, or a page of our own (`.json` from `Page.to_dict`)."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in (".svg", ".json"):
        raise FileError(f"{path.name} is no page: it should end in .svg or .json (a project ends in .enup)")
    data = _bytes(path, MOST_BYTES)
    beside = path.with_suffix(".dat")
    binary = any("binary".encode(code) in data for code in ("utf-8", "utf-16-le", "utf-16-be"))
    dat = _bytes(beside, MOST_DATA) if binary and beside.is_file() else b""
    if ending == ".svg":
        return read_svg(data, path.stem, dat)
    document = load(data, path.stem)
    own = isinstance(document, dict) and "blocks" in document
    return Page.from_dict(document) if own else read_document(document, path.stem, dat)


def open_pages(path: str | Path) -> list[Page]:
    """The page of a file, or every page of a project (`.enup`)."""
    path = Path(path)
    if path.suffix.lower() != ".enup":
        return [open_page(path)]
    project: Project = read_project(_bytes(path, MOST_BYTES))
    return [open_page(file) for file in project.files(path.parent)]


def save_page(page: Page, path: str | Path) -> None:
    """Write the page as an `.svg` or an exported `.json`, and its binary pins into the `.dat` beside it."""
    path = Path(path)
    writers = {".svg": write_svg, ".json": write_json}
    if path.suffix.lower() not in writers:
        raise FileError(f"a page is saved as .svg or .json, not {path.name!r}")
    data, dat = writers[path.suffix.lower()](page)
    if dat is not None:
        path.with_suffix(".dat").write_bytes(dat)
    path.write_bytes(data)
