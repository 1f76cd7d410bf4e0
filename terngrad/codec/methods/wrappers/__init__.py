"""Methods that wrap another method, such as error feedback."""
