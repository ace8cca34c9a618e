"""What a version of DuckDB or sqlglot must prove before dpsql answers with it, and the certificate that says so."""
