"""How child processes end, and the last lines that they print."""
