"""Clusters of real processes: one ps or worker task each, on this machine."""

import contextlib
import functools
import signal
import socket

import tensorflow as tf

from terngrad.cli import ports
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.training import assembly
from terngrad.training import batches
from terngrad.training import start
from tests.bin import programs

STEPS = 50


class Cluster:
  """The tasks of a run, each a process that can be killed and started again."""

  def __init__(
    self,
    num_ps,
    num_workers,
    arguments,
    program='mnist_distributed_train',
    limit=programs.LIMIT,
    task_flag='task_id',
  ):
    self._program = program
    self._task_flag = task_flag
    self._limit = limit
    self._arguments = arguments
    ports = free_ports(num_ps + num_workers)
    hosts = [f'localhost:{port}' for port in ports]
    self.hosts = {'ps': hosts[:num_ps], 'worker': hosts[num_ps:]}
    self._stack = contextlib.ExitStack()
    self.tasks = {}

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._stack.close()

  @property
  def chief(self):
    """The process of worker 0."""
    return self.tasks['worker', 0]

  def start(self, job, index, *more):
    """Starts a task, with `more` arguments after the common ones."""
    process = programs.Program(
      self._program,
      [
        f'--job_name={job}',
        f'--{self._task_flag}={index}',
        f'--ps_hosts={",".join(self.hosts["ps"])}',
        f'--worker_hosts={",".join(self.hosts["worker"])}',
        *self._arguments,
        *more,
      ],
      self._limit,
    )
    self.tasks[job, index] = self._stack.enter_context(process)
    return process

  def start_all(self, *more):
    """Starts all tasks, the chief last."""
    for job in ('ps', 'worker'):
      for index in reversed(range(len(self.hosts[job]))):
        self.start(job, index, *more)

  def restart(self, job, index, *more):
    """Kills a task without warning and starts it again."""
    self.tasks[job, index].send(signal.SIGKILL)
    self.tasks[job, index].wait()
    self.start(job, index, *more)

  def wait(self):
    """Waits for all; dict of (job, index) to `programs.Finished`."""
    return {task: process.wait() for task, process in self.tasks.items()}


def complete(num_ps, num_workers, arguments, *more, **options):
  """Runs a `Cluster` to its end, which is a good one; see `Cluster.wait`."""
  with Cluster(num_ps, num_workers, arguments, *more, **options) as cluster:
    cluster.start_all()
    finished = cluster.wait()
  assert {f.code for f in finished.values()} == {0}, finished
  return finished


def free_ports(count):
  """Ports that the system has just given."""
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
    for each in sockets:
      each.bind(('localhost', 0))
    return [each.getsockname()[1] for each in sockets]


def towers(
  data_dir,
  train_dir,
  num_processes,
  *,
  nodes=1,
  steps=STEPS,
  net='lenet',
  codec='',
  batch_size=4,
  **options,
):
  """The run of `arguments`, as towers on two devices of this process."""
  config = options_lib.build(
    configs.TrainConfig,
    dataset_name='mnist',
    data_dir=str(data_dir),
    train_dir=str(train_dir),
    image_size=28,
    net=net,
    batch_size=batch_size,
    max_steps=steps,
    **({'codec': codec} if codec else {'grad_bits': 1, 'clip_factor': 2.5}),
    **{'num_gpus': 2, 'num_nodes': nodes} | options,
  )

  whole = options_lib.replace(
    config,
    batch_size=batch_size * num_processes,
    num_nodes=nodes * num_processes,
  )

  context = assembly.process_context(whole)
  parts = [
    batches.open_data(
      config.data,
      config.model,
      nodes,
      benchmark=False,
      part=(part, num_processes),
    )
    for part in range(num_processes)
  ]

  def joined_batches(step):
    for rows in zip(*(part.batches(step) for part in parts), strict=True):
      # Process p has the workers p, p + P, p + 2 P...
      yield [_join_parts(row) for row in zip(*rows, strict=True)]

  context.batches = joined_batches
  start.run_assembled(
    whole,
    functools.partial(assembly.assemble, context=context),
    lambda line: None,
    show_progress=False,
    start=contextlib.nullcontext(),
  )


def _join_parts(parts):
  """Tensors [nodes, ...] of all processes, in the order of the workers."""
  stacked = tf.stack(parts, axis=1)
  return tf.reshape(stacked, [-1, *stacked.shape[2:]])


def arguments(data_dir, train_dir, *, steps=STEPS, codec=''):
  """Of a run that equals `towers`."""
  return [
    f'--data_dir={data_dir}',
    f'--train_dir={train_dir}',
    '--batch_size=4',
    f'--max_steps={steps}',
    *(
      [f'--codec={codec}'] if codec else ['--grad_bits=1', '--clip_factor=2.5']
    ),
    '--start_timeout=120',
  ]


def state(train_dir, step, start='tower_0/'):
  """All that a checkpoint holds of the first replica: name to array."""
  reader = tf.train.load_checkpoint(f'{train_dir}/model.ckpt-{step}')
  names = reader.get_variable_to_shape_map()
  return {name: reader.get_tensor(name) for name in names if start in name}


def pair():
  """The lower of two free ports beside each other."""
  while True:
    (port,) = ports.free(1)
    with contextlib.suppress(OSError), socket.socket() as above:
      above.bind(('', port + 1))
      return port
