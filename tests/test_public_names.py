"""The public names of terngrad exist."""

import pytest

import terngrad


@pytest.mark.parametrize('name', terngrad.__all__)
def test_every_public_name_exists(name):
  assert getattr(terngrad, name) is not None


def test_another_name_is_an_error():
  with pytest.raises(AttributeError, match='no attribute'):
    terngrad.nothing  # noqa: B018


def test_a_removed_name_says_what_to_use():
  with pytest.raises(ImportError, match='terngrad.keras.CompressedOptimizer'):
    from terngrad.keras import CompressedReduce  # noqa: F401
  with pytest.raises(ImportError, match='terngrad.compress '):
    terngrad.keras.CompressedReduce  # noqa: B018
  assert 'CompressedReduce' not in dir(terngrad.keras)
