"""A project file (`.enup`): which pictures belong to it, the global picture, and the one shown first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from .xml import FileError, Node, encode, parse_xml, render_xml

__all__ = ["Project", "read_project", "write_project"]

HREF = "xlink:href"


@dataclass
class Project:
    """A project. Paths are relative to its file, with `/`; `svg` is the whole document, unknown elements included.

    >>> project = Project.new("demo", ["picture/basic.svg"])
    >>> read_project(write_project(project)).pictures
    ['picture/basic.svg']
    """

    name: str
    pictures: list[str]
    global_picture: str
    active: str
    svg: Node

    @classmethod
    def new(cls, name: str, pictures: list[str]) -> Project:
        """A project with these pictures, the first of them shown."""
        names = {"xmlns": "http://www.w3.org/2000/svg", "xmlns:xlink": "http://www.w3.org/1999/xlink"}
        root = Node("svg", {**names, "pg-classname": "project", "pg-project": name}, ["\n"])
        return cls(name, list(pictures), "", pictures[0] if pictures else "", Node("#document", {}, [root]))

    def files(self, folder: Path) -> list[Path]:
        """The pages of the project in this folder. A picture outside the folder is refused; a 3-D view is no page."""
        found = []
        for picture in self.pictures:
            path = Path(picture)
            if path.is_absolute() or ".." in path.parts or PureWindowsPath(picture).drive:
                raise FileError(f"picture {picture!r} of project {self.name!r} lies outside the project's folder")
            if path.suffix.lower() == ".svg":
                found.append(folder / path)
        return found


def _root(document: Node) -> Node:
    for child in document.children:
        if isinstance(child, Node) and child.tag == "svg":
            return child
    raise FileError("this is not a project: its root element is not svg")


def _named(root: Node, tag: str) -> list[Node]:
    return [child for child in root.children if isinstance(child, Node) and child.tag == tag]


def read_project(data: bytes) -> Project:
    """The project in an `.enup` file's bytes."""
    document = parse_xml(data, "the project")
    root = _root(document)

    def hrefs(tag: str) -> list[str]:
        return [node.attributes.get(HREF, "").replace("\\", "/") for node in _named(root, tag)]

    first = {tag: next(iter(hrefs(tag)), "") for tag in ("pg-global", "activate-view")}
    name = root.attributes.get("pg-project", "")
    return Project(name, hrefs("pg-picture"), first["pg-global"], first["activate-view"], document)


def write_project(project: Project) -> bytes:
    """The project as the bytes of its file."""
    root = _root(project.svg)
    root.attributes["pg-project"] = project.name
    _sync(root, "pg-global", [project.global_picture] if project.global_picture else [])
    _sync(root, "pg-picture", project.pictures)
    _sync(root, "activate-view", [project.active] if project.active else [])
    return encode(render_xml(project.svg))


def _sync(root: Node, tag: str, wanted: list[str]) -> None:
    """Make the elements of this name say `wanted`, leaving those that do already, with whatever else they hold."""
    present = {node.attributes.get(HREF, "").replace("\\", "/"): node for node in _named(root, tag)}
    if list(present) == wanted:
        return
    root.children = [child for child in root.children if not (isinstance(child, Node) and child.tag == tag)]
    for path in wanted:
        root.children += ["\t", present.get(path) or Node(tag, {HREF: path.replace("/", "\\")}), "\n"]
