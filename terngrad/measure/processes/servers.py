"""Parameter servers to time: the traced step of the trainer on real tasks."""

import tensorflow as tf

from terngrad import native
from terngrad.cluster import service
from terngrad.cluster import tasks
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.measure.processes import exchanges
from terngrad.reduce import parts
from terngrad.reduce import programs
from terngrad.step import passes
from terngrad.step import replicas


def serve(cluster, timeout):
  """Serves as a ps, or as a worker but the chief, until the chief says so.

  Args:
    cluster: `cluster.spec.Cluster` of this task.
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


def join(cluster, timeout):
  """Makes this process the chief of all other tasks, once they are there.

  Args:
    cluster: `cluster.spec.Cluster` of worker 0.
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


def case(what, cluster, codec_text, batch, part_bytes=0):
  """Builds a case of all workers and servers of a cluster.

  Args:
    what: `exchanges.Subject`, its model on this process.
    cluster: `cluster.spec.Cluster` of worker 0, after `join`.
    codec_text: as `--codec` spells it.
    batch: examples a worker.
    part_bytes: see `reduce.parts.cut`.

  Returns:
    An `exchanges.Case`; its payload is what a worker pushes and pulls.
  """
  devices = tuple(task.device() for task in tasks.all_tasks(cluster, 'worker'))
  count = len(devices)
  layout = server.Servers(
    towers=towers.Towers(devices, count),
    servers=tuple(task.device() for task in tasks.all_tasks(cluster, 'ps')),
    num_processes=count,
  )
  codec = parts.cut(exchanges.codec_of(what, codec_text, count), part_bytes)
  copies = exchanges.replicas_of(what, devices, codec)
  for copy in copies[1:]:
    replicas.copy(copies[0], copy)
  examples = []
  for number, device in enumerate(devices):
    with tf.device(device):
      examples.append(exchanges.examples(what, batch, number))
  layout = layout._replace(feeds=[server.Given(*p) for p in examples[1:]])
  train_step = exchanges.step_of(what, layout, copies, codec)
  numbers = exchanges.numbers()

  def step():
    train_step.take(*examples[0], *numbers, tf.constant(0.0)).entropy.numpy()

  rounds = [
    part.codec.messages(number)
    for part in programs.parts(codec)
    for number in range(part.codec.num_rounds)
  ]
  pushed = sum(m.expected_words for messages in rounds for m in messages)
  pulled = sum(layout.totals(messages).bits() for messages in rounds)
  statistics = sum(int(tf.size(v)) for v in copies[0].statistics)
  # A row there, with scores and wish to stop; the agreed probe and the wish
  # back.
  row = 2 * (codec.num_probes + statistics + 1) + passes.NUM_SCORES
  payload = 4 * (pushed + row) + pulled / 8
  return exchanges.Case(step, payload, ['servers'])
