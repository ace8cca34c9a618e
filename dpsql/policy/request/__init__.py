"""The caller's request: a privacy loss or an accuracy, and the values of parameters."""
