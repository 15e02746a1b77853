"""What a `.npy` file promises, before anything is allocated for it."""

from __future__ import annotations

from typing import IO, Any

import numpy as np

__all__ = ["npy_header"]


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and dtype of the `.npy` that begins here, read up to its data.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((2, 3), np.float32)); _ = file.seek(0)
    >>> npy_header(file)
    ((2, 3), False, dtype('float32'))
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"version {version} of the format")
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return reader(file)
