"""Parameter servers to time: the traced step of the trainer on real tasks."""

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
  """Serves as a ps, or as a worker but the chief, until the chief says so.

  Args:
    cluster: of this task.
    timeout: seconds after which to end in any case.

  Raises:
    tasks.LostError: the port is taken.
  """
  task = tasks.all_tasks(cluster, cluster.job)[cluster.index]
  chief = tasks.all_tasks(cluster, 'worker')[0]
  # A worker runs its part of the step, whose operations it must know.
  native.available()
  served = service.Service(task, cluster, {}, {'GPU': 0})
  served.next_order(timeout)
  served.outlive(chief)


def join(cluster: spec.Cluster, timeout: float) -> None:
  """Makes this process the chief of all other tasks, once they are there.

  Args:
    cluster: of worker 0.
    timeout: seconds to wait for them.

  Raises:
    tasks.LostError: one did not come.
  """
  others = tasks.servers_of(cluster)
  states = tasks.states_within(others, timeout)
  absent = [str(task) for task in others if task not in states]
  if absent:
    raise tasks.LostError(
      f'Cluster: expected all tasks within {timeout:g} seconds, received no '
      f'answer from {", ".join(absent)}. Start them with the same flags, and '
      'look into their logs.'
    )
  tasks.connect(cluster)


def case(
  what: exchanges.Subject,
  cluster: spec.Cluster,
  codec_text: str,
  batch: int,
  part_bytes: int = 0,
) -> exchanges.Case:
  """Builds a case of all workers and servers of a cluster.

  Args:
    what: is trained, its model on this process.
    cluster: of worker 0, after `join`.
    codec_text: as `--codec` spells it.
    batch: examples a worker.
    part_bytes: see `reduce.parts.cut`.

  Returns:
    Its payload is what a worker pushes and pulls.
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
    feeds=[server.Given(*pair) for pair in examples[1:]],
  )
  train_step = exchanges.step_of(what, layout, copies, codec)
  values = *examples[0], *exchanges.numbers(), tf.constant(0.0)
  rounds = exchanges.messages_of(codec)
  pushed = sum(m.expected_words for messages in rounds for m in messages)
  pulled = sum(layout.totals(messages).bits() for messages in rounds)
  # A row there, with scores; the agreed probe and the request to stop back.
  row = 2 * exchanges.numbers_of_row(codec, copies) + passes.NUM_SCORES
  return exchanges.Case(
    lambda: train_step.take(*values).entropy.numpy(),
    4 * (pushed + row) + pulled / 8,
    ['servers'],
  )
