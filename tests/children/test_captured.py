"""A command of `terngrad` runs in a new process, and its output is kept."""

from terngrad import version
from terngrad.children import captured


def test_the_output_and_the_exit_code_are_returned():
  done = captured.run(['--version'])
  assert done == (0, f'terngrad {version.__version__}\n')
  refused = captured.run(['no_such_command'])
  assert refused.code == 2
  assert 'no_such_command' in refused.output  # of the standard error
