"""Bounds and values of columns, proposed for a policy from charged answers: the questions, what follows from answers, the text."""
