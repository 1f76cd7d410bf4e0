"""Errors of what a person asked for."""

import pytest

from terngrad import errors


def test_a_value_error_becomes_one_of_the_configuration():
  with pytest.raises(errors.ConfigError, match='^no codec$') as caught:
    with errors.as_config_error():
      raise ValueError('no codec')
  assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
  'error', [errors.CheckpointError('damaged'), RuntimeError('lost')]
)
def test_other_errors_stay_what_they_are(error):
  with pytest.raises(type(error)) as caught:
    with errors.as_config_error():
      raise error
  assert caught.value is error
