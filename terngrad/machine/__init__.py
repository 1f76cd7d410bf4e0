"""The machine and its libraries: processor, oneDNN, kept code, determinism."""
