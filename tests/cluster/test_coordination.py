"""Which errors of TensorFlow are losses of other tasks."""

import socket

import pytest
import tensorflow as tf

from terngrad.cluster import coordination
from terngrad.cluster import spec
from terngrad.cluster import watchdog

RESTARTED = (
  'Collective ops is aborted by: Task /job:worker/task:1 must be registered '
  'before sending heartbeat messages. The service might have restarted.'
)


class EndedError(Exception):
  """The process would have ended as one that lost a task."""


@pytest.fixture
def cluster(monkeypatch, awake):
  """Two workers, of which the other one answers."""

  def end(message):
    raise EndedError(message)

  monkeypatch.setattr(watchdog, 'end', end)
  return spec.make({'worker': ['localhost:1', awake]}, 'worker', 0)


def step(cluster, kind, message):
  """A step that ends with an error of TensorFlow."""
  with coordination.time_limit(cluster, 600, 'Step 3'):
    raise kind(None, None, message)


@pytest.mark.parametrize(
  ('kind', 'message'),
  [
    (tf.errors.InternalError, 'GPU kernels: out of memory'),
    (
      tf.errors.InternalError,
      'op on /job:worker/replica:0/task:0/device:GPU:0',
    ),
    (tf.errors.FailedPreconditionError, 'Could not find variable w.'),
    (tf.errors.CancelledError, 'Function was cancelled'),
    (tf.errors.InvalidArgumentError, 'Collective ops is aborted by: shapes'),
  ],
)
def test_an_error_of_this_process_is_no_lost_task(cluster, kind, message):
  with pytest.raises(kind):
    step(cluster, kind, message)


@pytest.mark.parametrize(
  ('kind', 'message'),
  [
    (tf.errors.UnavailableError, 'Socket closed'),
    (tf.errors.AbortedError, 'aborted'),
    (tf.errors.DeadlineExceededError, 'late'),
    (tf.errors.InternalError, 'Collective ops is aborted by: x'),
    (tf.errors.InternalError, 'GRPC error from /job:worker/replica:0/task:1'),
    (tf.errors.InvalidArgumentError, RESTARTED),
    (
      tf.errors.FailedPreconditionError,
      'Device /job:worker/replica:0/task:1/device:CPU:0 current incarnation '
      "doesn't match with one in the group.",
    ),
  ],
)
def test_errors_that_only_losses_have_are_losses(cluster, kind, message):
  with pytest.raises(
    EndedError, match='Step 3: expected every task to respond'
  ):
    step(cluster, kind, message)


@pytest.mark.parametrize('kind', coordination.LOST_TASK_ERRORS)
def test_any_error_is_a_loss_if_a_task_does_not_answer(cluster, kind):
  with socket.create_server(('127.0.0.1', 0)) as free:
    closed = f'127.0.0.1:{free.getsockname()[1]}'
  jobs = {'worker': [*cluster.jobs['worker'], closed]}
  with pytest.raises(EndedError, match='no answer from worker 2'):
    step(spec.make(jobs, 'worker', 0), kind, 'x')


@pytest.mark.parametrize(
  ('kind', 'message', 'expected'),
  [
    # The first process is lost and was started again meanwhile.
    (tf.errors.InvalidArgumentError, RESTARTED, RESTARTED),
    (
      tf.errors.UnavailableError,
      'Graph execution error:\n\nDetected at node a\n/task:0 went away\n',
      '/task:0 went away',
    ),
    (tf.errors.AbortedError, '', 'AbortedError'),
    (
      tf.errors.InvalidArgumentError,
      'Collective ops is aborted by: shapes',
      None,
    ),
    (ValueError, RESTARTED, None),
  ],
)
def test_a_loss_is_told_by_the_line_that_names_it(kind, message, expected):
  is_of_tensorflow = issubclass(kind, tf.errors.OpError)
  error = kind(None, None, message) if is_of_tensorflow else kind(message)
  assert coordination.loss_of(error) == expected
