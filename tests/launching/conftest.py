"""A launcher whose output nobody reads."""

import os
import sys

import pytest


@pytest.fixture
def close_output(monkeypatch):
  """Makes standard output a pipe whose reader has ended, and returns it.

  The test calls it, since pytest sets the output again before each test.
  """
  reader, writer = os.pipe()
  os.close(reader)
  with os.fdopen(writer, 'w') as out:

    def close():
      monkeypatch.setattr(sys, 'stdout', out)
      return out

    yield close
    monkeypatch.undo()
