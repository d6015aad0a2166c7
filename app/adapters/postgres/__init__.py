"""PostgreSQL behind the ports: engine, tables, repositories, unit of work, hot statements."""
