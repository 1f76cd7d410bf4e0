"""Which extra a command names when one of its packages is missing."""

import pytest

from slim import errors
from terngrad.cli import extras


@pytest.mark.parametrize(
  ('module', 'program', 'extra'),
  [
    ('PIL.Image', 'terngrad convert images', 'data'),
    ('PIL', 'terngrad train mnist', 'trainers'),
    ('PIL', 'terngrad report page', 'reports'),
    ('tensorflow_datasets', 'terngrad convert tfds', 'data'),
    ('matplotlib', 'terngrad plan', 'reports'),
    # In one extra only, whatever the command.
    ('pandas', 'terngrad train mnist', 'reports'),
    ('lmdb', 'resnet50_trainer', 'databases'),
  ],
)
def test_a_missing_package_is_advised_with_the_command_s_extra(
  module, program, extra
):
  message = extras.advice(ModuleNotFoundError(name=module), program)
  assert message.startswith(f'{program}: expected the package ')
  assert errors.install_command(extra) in message


@pytest.mark.parametrize('module', ['tensorflow', 'no_such_package', None])
def test_other_packages_get_no_advice(module):
  error = ModuleNotFoundError(name=module)
  assert extras.advice(error, 'terngrad train mnist') == ''
