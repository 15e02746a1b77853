"""How DirectML refuses: an HRESULT, and here also what DirectML tells only to its debug layer.

A bad description is `E_INVALIDARG` from CreateOperator. A bad binding removes the device there; here it is an error with
that HRESULT, raised before anything is read or written. `E_NOTIMPL` marks a limit of ours.
"""

from __future__ import annotations

import reprlib

from ...errors import PoolGradValueError

__all__ = ["DXGI_ERROR_DEVICE_REMOVED", "E_INVALIDARG", "E_NOTIMPL", "DirectMLError"]

E_INVALIDARG = 0x80070057
E_NOTIMPL = 0x80004001
DXGI_ERROR_DEVICE_REMOVED = 0x887A0005

_NAMES = {
    E_INVALIDARG: "E_INVALIDARG",
    E_NOTIMPL: "E_NOTIMPL",
    DXGI_ERROR_DEVICE_REMOVED: "DXGI_ERROR_DEVICE_REMOVED",
}


class DirectMLError(PoolGradValueError):
    """A description or a binding that DirectML would refuse.

    >>> raise DirectMLError("DML_OPERATOR_AVERAGE_POOLING", "Strides[1]", "at least 1", 0)
    Traceback (most recent call last):
    poolgrad.dialects.directml.errors.DirectMLError: DML_OPERATOR_AVERAGE_POOLING: Strides[1] must be at least 1, got 0 \
(E_INVALIDARG 0x80070057)
    """

    def __init__(self, operator: str, field: str, expected: str, given: object, hresult: int = E_INVALIDARG) -> None:
        self.operator, self.field, self.expected, self.given, self.hresult = operator, field, expected, given, hresult
        super().__init__(f"{operator}: {field} must be {expected}, got {reprlib.repr(given)} ({_NAMES[hresult]} 0x{hresult:08X})")

    def __reduce__(self) -> tuple[type[DirectMLError], tuple[str, str, str, object, int]]:
        return type(self), (self.operator, self.field, self.expected, self.given, self.hresult)
