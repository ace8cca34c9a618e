"""What a caller asks for: a privacy loss or an accuracy, and the values of parameters."""
