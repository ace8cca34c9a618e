"""What can be proved of a plan before any data is read.

`bounds` derives intervals, `domains` the possible group keys, `stability` how much one privacy unit can
change the rows, `blocks` and `sensitivity` how much it can change the measured statistics, `choose`
picks what to measure with which noise, and `verify` derives the loss again by another way.
"""
