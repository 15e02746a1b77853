"""Files through the browser: uploads of arrays, images and pages; downloads of arrays and pages."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from poolgrad.dialects.enuspace.export import load, read_document
from poolgrad.dialects.enuspace.watch import shown
from poolgrad.enuspace import Page, read_svg

from .arrays import Array, array_of
from .catalogue import SCALES, palette
from .documents import Document
from .failure import Failure
from .inputs import LAYOUTS, as_const, from_image, from_npy
from .limits import LIMITS
from .studio import Studio
from .views import grid, heat, numeric

__all__ = ["download_array", "download_page", "upload"]

KINDS = ("npy", "image", "page")
MOST_SIDE = 4_096


async def _body(request: Request) -> bytes:
    """The bytes of an upload, counted as they come."""
    most = LIMITS["upload"]
    parts: list[bytes] = []
    size = 0
    promised = request.headers.get("content-length", "0")
    if promised.isascii() and promised.isdigit() and int(promised[:20]) > most:
        raise Failure("limit", f"a file has at most {most} bytes, got {promised[:20]}")
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise Failure("limit", f"a file has at most {most} bytes")
        parts.append(part)
    return b"".join(parts)


async def upload(studio: Studio, request: Request) -> Response:
    """An array or an image as a Const; a page as a document."""
    kind, layout = request.query_params.get("kind", ""), request.query_params.get("layout", "NHWC")
    if kind not in KINDS:
        raise Failure("protocol", f"kind must be one of {', '.join(KINDS)}, got {kind[:40]!r}")
    if layout not in LAYOUTS:
        raise Failure("protocol", f"layout must be one of {', '.join(LAYOUTS)}, got {layout[:40]!r}")
    data = await _body(request)
    if kind == "page":
        return JSONResponse({"doc": (await _page(studio, data, request.query_params.get("name", ""))).id})

    def made() -> dict[str, Any]:
        array = from_npy(data) if kind == "npy" else from_image(data, layout)
        return as_const(array, studio.documents.vault)

    return JSONResponse(await asyncio.to_thread(made))


async def _page(studio: Studio, data: bytes, name: str) -> Document:
    stem, ending = PurePosixPath(name).stem[:200] or "page", PurePosixPath(name).suffix.lower()
    return studio.documents.add(await asyncio.to_thread(_read, data, stem, ending))


def _read(data: bytes, stem: str, ending: str) -> Page:
    if ending == ".svg":
        return read_svg(data, stem)
    if ending != ".json":
        raise Failure("file", f"{stem + ending!r} is no page", "a .svg or .json file")
    plain = load(data, stem)
    own = isinstance(plain, dict) and "blocks" in plain
    return Page.from_dict(plain) if own else read_document(plain, stem, b"")


def download_name(text: str) -> str:
    """A header that offers a file under this name, whatever it holds."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", text)[:100]
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(text.encode('utf-8', 'replace')[:200])}"


def _numbers(request: Request, name: str) -> list[int] | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,9}(?:,-?[0-9]{1,9}){0,31}", text):
        raise Failure("protocol", f"{name} must be numbers separated by commas, got {text[:40]!r}")
    return [int(part) for part in text.split(",")]


async def download_array(studio: Studio, request: Request) -> Response:
    """An array as .npy, .csv or .png."""
    form = request.path_params["form"]
    names = [request.query_params.get(key, "") for key in ("doc", "block", "pin")]
    document = studio.documents.get(names[0])
    array = await asyncio.to_thread(array_of, document, names[1], names[2])
    axes, index = _numbers(request, "axes"), _numbers(request, "index")
    plane = grid(array, axes, index or [0] * array.ndim) if axes is not None else None
    headers = {"content-disposition": download_name(f"{names[1]}-{names[2]}.{form}")}
    if form == "npy":
        return Response(await asyncio.to_thread(_npy, array), media_type="application/octet-stream", headers=headers)
    if form == "csv":
        lines = _grid_lines(plane) if plane is not None else _element_lines(array)
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)
    if form == "png":
        if plane is None:
            raise Failure("protocol", "axes is missing: a picture shows two axes, such as axes=1,2&index=0,0,0,0")
        scale = request.query_params.get("palette", "sequential")
        if scale not in SCALES:
            raise Failure("protocol", f"palette must be one of {', '.join(SCALES)}, got {scale[:40]!r}")
        return Response(await asyncio.to_thread(_png, numeric(plane), scale), media_type="image/png", headers=headers)
    raise Failure("protocol", f"an array is saved as npy, csv or png, not {form[:20]!r}")


def _npy(array: Array) -> bytes:
    if array.dtype.kind == "T":
        array = array.astype(f"U{max((len(str(text)) for text in array.ravel()), default=1) or 1}")
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return file.getvalue()


def _quoted(value: Any) -> str:
    text = shown(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def _element_lines(array: Array) -> Iterator[str]:
    """One line for each element: its place, then its value."""
    yield ",".join([*(f"axis_{k}" for k in range(array.ndim)), "value"]) + "\n"
    lines = []
    for k, (place, value) in enumerate(np.ndenumerate(array), 1):
        lines.append(",".join([*map(str, place), _quoted(value)]))
        if k % 4096 == 0:
            yield "\n".join(lines) + "\n"
            lines = []
    yield "".join(line + "\n" for line in lines)


def _grid_lines(plane: Array) -> Iterator[str]:
    for row in plane:
        yield ",".join(_quoted(value) for value in row) + "\n"


def _png(plane: Array, scale: str) -> bytes:
    """A picture with the colours of the page; what is not finite is transparent."""
    from PIL import Image

    if 0 in plane.shape:
        raise Failure("value", "the slice is empty")
    head, payload = heat(plane, MOST_SIDE, MOST_SIDE, None)
    values = payload.astype(np.float64)  # the ends of the scale may lie beyond float32
    low, high = head["min"] or 0.0, head["max"] or 0.0
    if scale == "diverging":
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    finite = np.isfinite(values)
    part = (np.where(finite, values, low) - low) / ((high - low) or 1)
    pixels = np.zeros((*values.shape, 4), np.uint8)
    pixels[..., :3] = palette(scale)[np.clip(part * 255, 0, 255).round().astype(np.uint8)]
    pixels[..., 3] = np.where(finite, 255, 0)
    file = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(file, "PNG")
    return file.getvalue()


async def download_page(studio: Studio, request: Request) -> Response:
    """The whole page in our own form."""
    document = studio.documents.get(request.query_params.get("doc", ""))
    text = await asyncio.to_thread(lambda: json.dumps(document.page.to_dict(), indent=1))
    headers = {"content-disposition": download_name(f"{document.page.name}.json")}
    return Response(text, media_type="application/json", headers=headers)
