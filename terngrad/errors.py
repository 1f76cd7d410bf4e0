"""Exceptions whose messages are written for the user of a program."""

import contextlib
from collections.abc import Iterator


class ConfigError(ValueError):
  """The requested configuration is not possible; nothing was written.

  The message says what was expected, what was received, and what to do.
  """


class CheckpointError(ConfigError):
  """A checkpoint is missing, damaged or belongs to another run."""


class TrainingError(RuntimeError):
  """Training had to stop; the last checkpoint is valid."""


@contextlib.contextmanager
def as_config_error() -> Iterator[None]:
  """Converts a ValueError raised in the block to a `ConfigError`."""
  try:
    yield
  except ConfigError:
    raise
  except ValueError as error:
    raise ConfigError(str(error)) from error
