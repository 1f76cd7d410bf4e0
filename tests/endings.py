"""Waits for the end of a process of somebody else."""

import os
import select


def has_ended(process, seconds=60):
  """Whether a process ends; on a busy machine a killed one needs a moment."""
  try:
    ended = os.pidfd_open(process)
  except ProcessLookupError:
    return True
  try:
    return bool(select.select([ended], [], [], seconds)[0])
  finally:
    os.close(ended)
