"""The noise behind each cell of an answer, and confidence intervals from its law."""
