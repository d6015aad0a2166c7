"""All that is kept in PostgreSQL: tables, repositories, unit of work, reports."""
