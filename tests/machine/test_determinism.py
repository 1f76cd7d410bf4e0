"""Op determinism is on in a context, and the process gets its setting back."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from terngrad.machine import determinism
from tests import seeming_gpu


@pytest.fixture
def setting():
  """Switches op determinism as a test asks; off afterwards."""

  def switch(is_on):
    if is_on:
      tf.config.experimental.enable_op_determinism()
    else:
      config.disable_op_determinism()

  yield switch
  switch(False)


@pytest.mark.parametrize(
  ('before', 'required', 'within'),
  [
    (False, True, True),
    (False, False, False),
    (True, True, True),
    (True, False, True),
  ],
)
def test_the_setting_of_the_process_returns(
  setting, monkeypatch, before, required, within
):
  seeming_gpu.pretend(monkeypatch)
  setting(before)
  with pytest.raises(KeyError), determinism.require(required):
    assert config.is_op_determinism_enabled() == within
    line = determinism.describe()
    raise KeyError
  assert config.is_op_determinism_enabled() == before
  assert line.startswith('operations: ')
  assert ('end with different bits' in line) != within


@pytest.mark.parametrize('required', [True, False])
def test_machines_without_gpu_keep_their_operations_and_bits(required):
  with determinism.require(required):
    assert not config.is_op_determinism_enabled()
    assert determinism.describe() == 'operations: those of CPUs, which repeat'
