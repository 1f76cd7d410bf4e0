"""Runs the trainings of `cases`; only this module calls the code under test.

If an interface changes, only this module is adapted. `bits` returns a case's
bits in this process, `bits_by_servers` those with parameter servers;
`of_processes` calls both in other processes.
"""

import json
import pathlib

import numpy as np
import tensorflow as tf

from terngrad.cluster import tasks
from terngrad.codec.stages import tracing
from terngrad.exchange import collective
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.reduce import programs
from terngrad.reduce import states
from terngrad.step import replicas
from terngrad.step import step as steps
from tests.bits import cases
from tests.exchange import processes
from tests.step import small

_RATE, _DECAY = 0.05, 0.5
# Seconds for the cases of a group in processes; some five times what they take.
_LIMIT = 900


def bits(case, members=None):
  """All variables of every replica of this process, as bits.

  Args:
    case: `cases.Case`.
    members: `exchange.group.Group` of its processes; None for one alone.

  Returns:
    List of uint32 [elements], one a device.
  """
  layout = cases.LAYOUTS[case.layout]
  exchange = None
  if members is not None:
    devices = tuple(f'/CPU:{i}' for i in range(layout.devices))
    exchange = collective.Collective(
      members, devices, layout.workers, layout.algorithm
    )
  training = _training(case, layout.devices, exchange)
  training.run(cases.STEPS, rate=_RATE)
  return [training.values(index) for index in range(layout.devices)]


def bits_by_servers(case, cluster):
  """`bits` of the chief and of the other workers, by parameter servers.

  Args:
    case: `cases.Case`.
    cluster: `cluster.spec.Cluster` of the chief, which has joined.

  Returns:
    List of uint32 [elements], one a process.
  """
  layout = cases.LAYOUTS[case.layout]
  devices = tuple(task.device() for task in tasks.all_tasks(cluster, 'worker'))
  parts = _training(case, 1)
  copies = replicas.create(
    parts.plan,
    parts.optimizer,
    devices,
    shared=states.shared(parts.codec),
  )
  served = server.Servers(
    towers=towers.Towers(devices, layout.workers),
    servers=tuple(task.device() for task in tasks.all_tasks(cluster, 'ps')),
    num_processes=len(devices),
    feeds=[],
  )
  train_step = steps.TrainStep(
    steps.Training(
      parts.node_pass,
      served,
      copies,
      states.MethodStates(parts.codec, served),
      parts.optimizer,
      seed=11,
    ),
    parts.codec,
  )

  @tracing.function
  def step(number, *batches):
    first, *others = zip(batches[::2], batches[1::2], strict=True)
    served.feeds[:] = [server.LocalBatch(*other) for other in others]
    numbers = number, tf.constant(_RATE), tf.constant(_DECAY)
    return train_step.take(*first, *numbers).entropy

  for number in range(cases.STEPS):
    batches = []
    for process, device in enumerate(devices):
      with tf.device(device):
        # Process p of P has the workers p, p + P, p + 2 P...
        batches += [
          tf.identity(part[process :: len(devices)])
          for part in small.batch_of(number, parts.shape)
        ]
    step(tf.constant(number, tf.int64), *batches).numpy()
  return [
    np.concatenate([v.numpy().ravel() for v in copy.variables()]).view(
      np.uint32
    )
    for copy in copies
  ]


def _training(case, devices, exchange=None):
  """A training that has not begun."""
  code = cases.CODES[case.code]
  workers = cases.LAYOUTS[case.layout].workers
  training = small.Training(
    small.conv_net,
    devices=devices,
    workers=workers,
    codec=code.text.format(workers=workers),
    exchange=exchange,
    part_bytes=cases.PART_BYTES if case.parts else 0,
    on_kernels=case.kernels,
    plain=code.plain,
  )
  # Otherwise the case would be another one's twin.
  assert len(programs.parts(training.codec)) == (3 if case.parts else 1)
  return training


def of_processes(group, folder):
  """Runs the cases of a group in new processes.

  Args:
    group: `cases.Group`.
    folder: path, for what they leave.

  Returns:
    List with the `bits` of each case, those of all processes together.
  """
  layout = cases.LAYOUTS[group.layout]
  count = layout.processes + layout.servers
  addresses = processes.addresses(count)
  hosts = {'worker': addresses[: layout.processes]}
  if layout.servers:
    hosts['ps'] = addresses[layout.processes :]
  script = pathlib.Path(__file__).with_name('process.py')
  request = {'hosts': hosts, 'folder': str(folder), 'group': group}
  native = {'TERNGRAD_NATIVE': f'{group.kernels:d}'}
  with processes.Processes() as running:
    for job, those in hosts.items():
      for index in range(len(those)):
        words = json.dumps(request | {'job': job, 'index': index})
        running.start(script, words, **native)
    # Workers of collectives, or the chief of the servers, which starts first.
    ending = running.processes[: 1 if layout.servers else None]
    for index, process in enumerate(ending):
      code = process.wait(timeout=_LIMIT)
      assert code == 0, running.log(index)[-5000:]
  found = [[] for _ in group.cases()]
  for path in sorted(pathlib.Path(folder).glob('*.npz')):
    with np.load(path) as arrays:
      for name in arrays:
        found[int(name.split('-')[0])].append(arrays[name])
  return found
