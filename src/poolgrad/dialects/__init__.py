"""How other systems say average pooling: one module each, with that system's names, arguments, defaults and refusals.

A dialect computes nothing. It turns its system's arguments into tables (`Pool`) and hands them to the core. Each has
`read(arguments, input_shape)` and `write(pooling, input_shape)`: arguments are a plain dict with that system's names, plus
`op`, the name of its function (it may be left out where the other arguments tell). `translate` joins any two.

>>> from poolgrad import dialects
>>> torch = {"kernel_size": (3, 2), "stride": (2, 2), "padding": (1, 0)}
>>> dialects.translate(torch, "torch", "onnx", input_shape=(2, 3, 9, 8))
{'op': 'AveragePool', 'kernel_shape': [3, 2], 'strides': [2, 2], 'pads': [1, 0, 1, 0], 'count_include_pad': 1, 'opset': 22}
"""

from .pooling import Adaptive, Fractional, NoTranslation, Pooling, Regular
from .registry import NAMES, Dialect, dialect
from .translate import translate

__all__ = ["NAMES", "Adaptive", "Dialect", "Fractional", "NoTranslation", "Pooling", "Regular", "dialect", "translate"]
