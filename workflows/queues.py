"""Name the task queues, one a kind of work, so that no kind can starve another.

A hundred observers on one queue were seen to block a revert for twenty seconds: undo has slots of
its own, and so has holding.
"""

MAIN = "burnproof"
HOLD = "burnproof-hold"
OBSERVE = "burnproof-observe"
UNDO = "burnproof-undo"
