"""Errors meant for the person at the keyboard, by what they ask of them."""


class ConfigError(ValueError):
  """What was asked for cannot be done; nothing was written.

  The message says what was expected, what was received, and what to do.
  """


class CheckpointError(ConfigError):
  """A checkpoint is missing, damaged or of something else."""


class TrainingError(RuntimeError):
  """Training had to stop; the last checkpoint is good."""
