"""How often Python looks for objects that hold each other, in processes that read records by the million.

In: how many objects more than were freed are made in between. Keeps true: what is there when this is called is never
gone through again; records are in no cycle, and to look through everything for some while they come takes up to a
third of the time.
"""

from __future__ import annotations

import gc


def look_seldom(made: int) -> None:
    """From now on, in this process."""
    gc.freeze()
    gc.set_threshold(made, 20, 20)
