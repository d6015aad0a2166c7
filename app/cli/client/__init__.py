"""What every command shares: the connection, the terminal, words, tables, errors."""
