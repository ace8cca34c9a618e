"""Differential privacy as a library of its own: mechanisms, accounting, synthesis, the local model, experts."""
