import pytest

from slim import errors
from slim.datasets import factory as datasets
from slim.preprocessing import factory


def test_every_data_set_has_a_preprocessing():
  assert set(datasets.DATASETS) == set(factory.PREPROCESSINGS)


def test_unknown_preprocessing_is_refused_by_name():
  with pytest.raises(errors.UnknownNameError, match='expected one of mnist'):
    factory.get('imagenet')
