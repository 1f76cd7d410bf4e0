"""One warm process for all runs."""

import pytest

from tests.bin import programs


@pytest.fixture(scope='session')
def worker(tmp_path_factory):
  """A process that runs programs one after the other; see programs.Worker."""
  with programs.Worker(tmp_path_factory.mktemp('worker')) as process:
    yield process
