"""What is asked of TensorFlow's runtime."""

from tests import forked


def kinds(*words):
  """The operations of a large sum, in a process of its own."""
  done = forked.run('tests.cluster.large_sum', *words)
  assert done.returncode == 0, done.stderr
  return done.stdout.split()


def test_a_large_sum_keeps_its_order_where_asked_for():
  assert 'AddN' in kinds('keep')


def test_a_large_sum_is_taken_apart_otherwise():
  found = kinds()
  assert 'AddN' not in found
  assert found.count('AssignAdd') == 3
