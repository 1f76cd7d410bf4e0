"""Steps, bytes and seconds until runs reach given scores."""
