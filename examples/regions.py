"""A gradient in pieces: each piece of the result asks for exactly the cells it needs, and gets the same bits.

This is how chunks, shards and streams are served: nothing overlaps, nothing is trimmed, and the answer does not depend
on how the work was cut.
"""

from __future__ import annotations

import numpy as np

import poolgrad
from poolgrad import Axis, Pool

pool = Pool((Axis.regular(50, 9, stride=2, padding="same"), Axis.regular(300, 5, stride=3, padding="same")))
dy = np.random.default_rng(2).standard_normal((*pool.output_size, 16), dtype=np.float32)
whole = poolgrad.gradient(pool, dy, layout="HWC")

dx = np.empty((*pool.input_size, 16), dtype=np.float32)
for top in range(0, 50, 20):
    for left in range(0, 300, 128):
        region = (slice(top, min(top + 20, 50)), slice(left, min(left + 128, 300)))
        cells = pool.cells_for(region)
        dx[region] = poolgrad.gradient(pool, dy[cells], layout="HWC", region=region)
        rows, columns = ((part.start, part.stop) for part in cells)
        print(f"inputs {region[0].start:>2}:{region[0].stop:<2} × {region[1].start:>3}:{region[1].stop:<3}", end="  ")
        print(f"need cells {rows[0]:>2}:{rows[1]:<2} × {columns[0]:>3}:{columns[1]:<3}")

print("the same bits as one call:", np.array_equal(dx.view(np.uint32), whole.view(np.uint32)))
