"""Errors meant for the person at the keyboard, by what they ask of them."""

import contextlib
from collections.abc import Iterator


class ConfigError(ValueError):
  """What was asked for cannot be done; nothing was written.

  The message says what was expected, what was received, and what to do.
  """


class CheckpointError(ConfigError):
  """A checkpoint is missing, damaged or of something else."""


class TrainingError(RuntimeError):
  """Training had to stop; the last checkpoint is good."""


@contextlib.contextmanager
def as_config_error() -> Iterator[None]:
  """Raises what the block raises as ValueError as a `ConfigError`."""
  try:
    yield
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(str(error)) from error
