"""How a terminal's turn ends (see `turns`), and how long it may be."""

SPECULATION = 16  # transactions in a row on one connection while others wait
WAIT, NEXT, SETTLE, TICK = range(4)
