"""ClickHouse as an engine of private rows, embedded in this process by chdb."""
