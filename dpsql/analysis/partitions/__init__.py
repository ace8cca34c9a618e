"""Which partitions of a table a release reads, by the conditions that its rows must meet."""
