"""Op determinism is on in a context, and the process gets its setting back."""

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from terngrad.cluster import determinism


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
def test_the_setting_of_the_process_returns(setting, before, required, within):
  setting(before)
  with pytest.raises(KeyError), determinism.require(required):
    assert config.is_op_determinism_enabled() == within
    line = determinism.describe()
    raise KeyError
  assert config.is_op_determinism_enabled() == before
  assert line.startswith('operations: ')
  assert ('end with different bits' in line) != within
