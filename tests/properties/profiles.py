"""How long the laws over drawn plans search: the searches of every run, and the deep one."""

from __future__ import annotations

from hypothesis import Phase, settings
from speeds import examples

FAST = settings(max_examples=examples(200), derandomize=True, database=None)
"""The same examples in each run."""
DRAWN = settings(max_examples=2000, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate])
"""For what is drawn alone, before any engine computes, until it is found: mostly by the 500th example."""
FEATURED = settings(max_examples=examples(60), derandomize=True, database=None)
"""For each function of the registry, for four seconds."""
WIDE = settings(max_examples=examples(examples(500), least=12), derandomize=True, database=None)
"""For laws that need no engine."""
DEEP = settings(max_examples=6_000, database=None)
"""New examples in each run, for seven minutes or eight on a core that does nothing else."""
