"""How close to the truth the answers of dpsql and of other systems are, at equal privacy charge."""
