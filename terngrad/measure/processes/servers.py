"""Builds steps with parameter servers on separate tasks, to be timed."""

import tensorflow as tf

from terngrad import native
from terngrad.cluster import service
from terngrad.cluster import spec
from terngrad.cluster import tasks
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.measure.processes import exchanges
from terngrad.reduce import parts
from terngrad.step import passes


def serve(cluster: spec.Cluster, timeout: float) -> None:
  """Serves as a ps or as a non-chief worker, until the chief stops it.

  Args:
    cluster: the cluster, as this task sees it.
    timeout: seconds after which to end in any case.

  Raises:
    tasks.LostError: the port is taken.
  """
  task = tasks.all_tasks(cluster, cluster.job)[cluster.index]
  chief = tasks.all_tasks(cluster, 'worker')[0]
  # Load the native operations: a worker runs its part of the step.
  native.available()
  served = service.TaskServer(task, cluster, {}, {'GPU': 0})
  served.next_order(timeout)
  served.wait_for_chief_end(chief)


def join(cluster: spec.Cluster, timeout: float) -> None:
  """Connects this process, the chief, to all other tasks once they run.

  Args:
    cluster: the cluster, as worker 0 sees it.
    timeout: seconds to wait for the tasks.

  Raises:
    tasks.LostError: a task did not answer.
  """
  others = tasks.servers_of(cluster)
  states = tasks.wait_for_states(others, timeout)
  absent = [str(task) for task in others if task not in states]
  if absent:
    raise tasks.LostError(
      f'Cluster: expected all tasks to answer within {timeout:g} seconds, '
      f'received no answer from {", ".join(absent)}. Start them with the same '
      'flags, and check their logs.'
    )
  tasks.connect(cluster)


def case(
  what: exchanges.Subject,
  cluster: spec.Cluster,
  codec_text: str,
  batch: int,
  part_bytes: int = 0,
) -> exchanges.MeasuredStep:
  """Builds a case of all workers and servers of a cluster.

  Args:
    what: the model or the gradients; a model is on this process.
    cluster: the cluster, as worker 0 sees it, after `join`.
    codec_text: codec in the syntax of `--codec`.
    batch: examples per worker.
    part_bytes: bytes per part, as for `reduce.parts.cut`.

  Returns:
    A case whose payload is what a worker pushes and pulls.
  """
  devices = tuple(task.device() for task in tasks.all_tasks(cluster, 'worker'))
  count = len(devices)
  codec = parts.cut(exchanges.codec_of(what, codec_text, count), part_bytes)
  copies = exchanges.replicas_of(what, devices, codec)
  examples = []
  for number, device in enumerate(devices):
    with tf.device(device):
      examples.append(exchanges.examples(what, batch, number))
  layout = server.Servers(
    towers=towers.Towers(devices, count),
    servers=tuple(task.device() for task in tasks.all_tasks(cluster, 'ps')),
    num_processes=count,
    feeds=[server.LocalBatch(*pair) for pair in examples[1:]],
  )
  train_step = exchanges.step_of(what, layout, copies, codec)
  values = *examples[0], *exchanges.schedule_values(), tf.constant(0.0)
  rounds = exchanges.messages_of(codec)
  pushed = sum(m.expected_words for messages in rounds for m in messages)
  pulled = sum(layout.totals(messages).bits() for messages in rounds)
  # Push a row with scores; pull the agreed probe and the stop request.
  row = 2 * exchanges.row_size(codec, copies) + passes.NUM_SCORES
  return exchanges.MeasuredStep(
    lambda: train_step.take(*values).entropy.numpy(),
    4 * (pushed + row) + pulled / 8,
    ['servers'],
  )
