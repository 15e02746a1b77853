"""The conformance kit behind `poolgrad check`: an average-pool gradient, somebody else's, against the exact one.

`check` runs the suite against a target in worker processes and returns a `Report`. For kernels that no Python can call,
`emit` writes the cases to a directory and `grade` judges the answers found there.

>>> from poolgrad import conformance
>>> conformance.check("poolgrad:avg_pool_grad", groups=["ceil"], limit=2).ok
True
"""

from .case import Case
from .files import emit, grade
from .kit import check
from .report import Group, Report, Reproducer, Result
from .runner import NoTarget
from .suite import GROUPS, suite
from .targets import TARGETS

__all__ = ["GROUPS", "TARGETS", "Case", "Group", "NoTarget", "Report", "Reproducer", "Result", "check", "emit", "grade", "suite"]
