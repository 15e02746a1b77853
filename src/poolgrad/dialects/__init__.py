"""How other systems say average pooling: one module each, with that system's names, arguments, defaults and refusals.

A dialect computes nothing. It turns its system's arguments into tables (`Pool`) and hands them to the core.
"""
