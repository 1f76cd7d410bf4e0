import pytest

from slim import errors


def test_lookup_returns_the_entry():
  assert errors.lookup({'lenet': 3}, 'lenet', 'net') == 3


def test_unknown_name_lists_the_known_and_suggests_the_nearest():
  with pytest.raises(
    errors.UnknownNameError,
    match="Unknown net: expected one of alexnet, lenet; received 'lenett'; "
    "did you mean 'lenet'",
  ):
    errors.lookup({'lenet': 1, 'alexnet': 2}, 'lenett', 'net')


def test_unknown_name_without_a_near_one_gets_no_suggestion():
  with pytest.raises(errors.UnknownNameError) as caught:
    errors.lookup({'lenet': 1}, 'xyz', 'net')
  assert 'did you mean' not in str(caught.value)


def test_unknown_names_are_data_errors_and_value_errors():
  assert issubclass(errors.UnknownNameError, errors.DataError)
  assert issubclass(errors.DataError, ValueError)
