"""The context of a run: exchange, data, and the hooks of the loop."""

import collections
import contextlib
import math
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from terngrad import errors
from terngrad import native
from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.cluster import spec
from terngrad.exchange import collective
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.machine import onednn
from terngrad.native import gpu as gpu_kernels
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.step import step as steps
from terngrad.step import whole_step
from terngrad.training import batches
from terngrad.training import meter
from terngrad.training import metrics
from terngrad.training import run_codecs


class Hooks:
  """Hooks of the training loop: time limits, log lines and periodic actions.

  Attributes:
    log_every: steps between two log lines.
    save_secs: seconds between checkpoints, in addition to those of save_iter.
    observe_secs: seconds between histograms, in addition to those of save_iter.
    runs_ahead: True starts further steps before the results of a step are read,
      which happens at the next log line. So a GPU always has work. On CPUs the
      start of a step waits for its end anyway.
  """

  log_every = 10
  save_secs = math.inf
  observe_secs = math.inf
  runs_ahead = False

  def __init__(
    self, cluster: spec.Cluster | None = None, seconds: float = math.inf
  ) -> None:
    """Sets the cluster, None for one process, and its time limit in seconds."""
    self._cluster = cluster
    self._seconds = seconds

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Context that ends the process if the block takes too long.

    Use it for blocks that wait for other processes. `what` names the block in
    the error message.
    """
    return coordination.time_limit(self._cluster, self._seconds, what)

  def local_time_limit(
    self, what: str
  ) -> contextlib.AbstractContextManager[None]:
    """Limits the time of local work too, in a run with parameter servers.

    Local work may wait there: TensorFlow registers each function and each kind
    of operation that the chief runs for the first time with every task. Other
    runs have no limit. `what` names the block in the error message.
    """
    del what
    return contextlib.nullcontext()

  def line(self, step: int, values: dict[str, float]) -> str:
    """Formats the log line of a step from its metrics by name."""
    return meter.log_line(step, values)

  def before_save(self) -> None:
    """Raises `errors.TrainingError` if replicas on other tasks differ.

    The loop itself compares only the first replica of each process.
    """

  def measure(self) -> metrics.Arrivals | None:
    """Returns the stale and dropped gradients since the last record.

    None if every step waits for all workers.
    """
    return None

  def epoch_ended(self, record: dict[str, float]) -> None:
    """Called with the record of a finished epoch, on the chief only."""


class ExecutionContext:
  """The exchange, the data and the hooks of a run.

  Attributes:
    exchange: maps workers to devices and moves their messages.
    data: the examples.
    hooks: periodic actions of the loop and its time limits.
  """

  def __init__(
    self, exchange: protocol.Exchange, data: batches.Data, hooks: Hooks
  ) -> None:
    """Sets the attributes."""
    self.exchange = exchange
    self.data = data
    self.hooks = hooks

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """Makes the traced step that trains with a codec."""
    return whole_step.step_class(training, codec)(training, codec)

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches.Batch]:
    """Yields the batches that follow `step` completed steps.

    `shares` holds the examples of each worker; None for equal shares.
    """
    return self.data.batches(step, shares)

  def placement_scope(self) -> contextlib.AbstractContextManager[None]:
    """Context in which the model's variables are created.

    They are the variables of the first replica. A subclass can spread them over
    several devices.
    """
    return contextlib.nullcontext()

  def join(self) -> None:
    """Waits for pending work after the loop ends."""


@contextlib.contextmanager
def memory_errors_as_config_errors() -> Iterator[None]:
  """Context that reports out-of-memory errors as `errors.ConfigError`.

  Raises:
    errors.ConfigError: the network and its batches do not fit into memory.
  """
  try:
    yield
  except (
    MemoryError,
    OverflowError,
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
  ) as error:
    text = getattr(error, 'message', str(error))
    raise errors.ConfigError(
      'The run: expected a net and batches that fit into the memory, received: '
      f'{text[:300]} Use a smaller --image_size or --batch_size.'
    ) from error


def remarks(
  codec: gradients.GradientCodec,
  exchange: protocol.Exchange,
  always_float: bool = False,
) -> list[str]:
  """Formats log lines on the messages, the kernels and the collectives.

  `always_float` is True if --floating_grad_epoch=1 replaces the chosen codec in
  every step.
  """
  bits = codec.bits(exchange.num_workers) / max(1, codec.num_elements)
  elements: collections.Counter[str] = collections.Counter()
  for bucket in codec.buckets:
    elements[bucket.method.name] += bucket.num_elements
  sent = ', '.join(f'{n:,} as {name}' for name, n in elements.items())
  hint = '; --grad_bits=1 sends 1.6' if codec.lossless else ''
  if always_float:
    hint = ', because of --floating_grad_epoch=1'
  lines = [
    f'gradients: {bits:.2f} bits per element are sent{hint} ({sent})',
    f'kernels: {_describe_kernels(exchange.devices)}',
  ]
  step_codecs = [
    fragments.step_codec(codec, step) for step in range(codec.num_fragments)
  ]
  if len(step_codecs) > 1:
    sizes = ', '.join(f'{one.num_elements:,}' for one in step_codecs)
    lines.append(f'fragments: {sizes} elements, exchanged in turn')
  size = device_groups.devices_per_worker(exchange)
  if size > 1:
    lines.append(
      f'workers: {exchange.num_workers} of {size} devices each, which average '
      'their gradients in float32'
    )
  members = getattr(exchange, 'leaders', exchange)
  if isinstance(members, collective.Collective) and members.group.size > 1:
    codec = max(step_codecs, key=lambda one: one.num_words)
    rounds = range(codec.num_rounds)
    messages = [m for number in rounds for m in codec.messages(number)]
    lines.append(members.describe_plan(messages))
  return lines


def _describe_kernels(devices: Sequence[str]) -> str:
  if devices_lib.types(devices) != {'CPU'}:
    names = {devices_lib.gpu_name(name) or 'CPU' for name in devices}
    cards = ', '.join(sorted(names))
    reason = run_codecs.why_no_gpu_kernels(devices)
    reason = reason or gpu_kernels.unavailable_reason()
    if reason is None:
      return f'CUDA, for codes that have such kernels, on {cards}'
    return f'compiled by XLA for {cards}; CUDA kernels are not used: {reason}'
  library = f'oneDNN is {"on" if onednn.is_on() else "off"} for the passes'
  if native.available():
    return f'native ({native.instruction_set()}); {library}'
  return (
    f'compiled by XLA, slower but with the same bits; {library}; native '
    f'kernels are not used: {native.unavailable_reason()}'
  )
