"""SQL that people write: shapes of statements from many sources, over eight studies, and what becomes of each."""
