"""Errors of invalid options."""

import pytest

from terngrad import errors


def test_a_value_error_becomes_a_config_error():
  with pytest.raises(errors.ConfigError, match='^no codec$') as caught:
    with errors.as_config_error():
      raise ValueError('no codec')
  assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
  'error', [errors.CheckpointError('damaged'), RuntimeError('lost')]
)
def test_other_errors_are_unchanged(error):
  with pytest.raises(type(error)) as caught:
    with errors.as_config_error():
      raise error
  assert caught.value is error
