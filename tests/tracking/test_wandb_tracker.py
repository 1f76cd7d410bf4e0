"""What the tracker asks of wandb, which a module here replaces."""

import sys
import types

import pytest

from terngrad.tracking import trackers
from terngrad.tracking import wandb_tracker


class Config(dict):
  """Like `wandb.Config`, which refuses changes unless they are allowed."""

  def update(self, values, allow_val_change=False):
    assert allow_val_change
    super().update(values)


@pytest.fixture
def wandb(monkeypatch):
  """A module with a run that the program began."""
  module = types.ModuleType('wandb')
  module.run = types.SimpleNamespace(id='theirs', project='p', config=Config())
  monkeypatch.setitem(sys.modules, 'wandb', module)
  return module


def test_options_are_logged_to_a_run_that_the_program_began(wandb, tmp_path):
  assert wandb_tracker.find_active() == 'theirs'
  run = trackers.TrackedRun(str(tmp_path), {'net': 'lenet'}, {}, 'theirs')
  tracker = wandb_tracker.start(run)
  assert wandb.run.config == {'net': 'lenet'}
  assert tracker.identity == {'id': 'theirs', 'project': 'p'}
