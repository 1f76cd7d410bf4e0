"""What `import terngrad` offers is there."""

import pytest

import terngrad


@pytest.mark.parametrize('name', terngrad.__all__)
def test_every_public_name_is_there(name):
  assert getattr(terngrad, name) is not None


def test_another_name_is_an_error():
  with pytest.raises(AttributeError, match='no attribute'):
    terngrad.nothing  # noqa: B018
