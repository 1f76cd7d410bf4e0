"""Where a run takes place, and what a loop does there besides its steps."""

import collections
import contextlib
import math
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from terngrad import errors
from terngrad import native
from terngrad.cluster import coordination
from terngrad.cluster import onednn
from terngrad.cluster import spec
from terngrad.exchange import collective
from terngrad.exchange import protocol
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import meter
from terngrad.training import metrics


class Hooks:
  """What a loop does besides its steps.

  Attributes:
    log_every: steps between two lines.
    save_secs: seconds between checkpoints, beside those of save_iter.
    observe_secs: seconds between histograms, beside those of save_iter.
  """

  log_every = 10
  save_secs = math.inf
  observe_secs = math.inf

  def __init__(
    self, cluster: spec.Cluster | None = None, seconds: float = math.inf
  ) -> None:
    """Takes the equal processes, None for one, and the time for a wait."""
    self._cluster = cluster
    self._seconds = seconds

  def time_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Ends the process where something takes too long.

    Args:
      what: the name of something that waits for other processes.
    """
    return coordination.time_limit(self._cluster, self._seconds, what)

  def own_limit(self, what: str) -> contextlib.AbstractContextManager[None]:
    """Likewise of what this process does by itself, which may wait too.

    TensorFlow tells every task of a cluster with parameter servers of each
    function and kind of operation that the chief meets for the first time.

    Args:
      what: its name.
    """
    del what
    return contextlib.nullcontext()

  def line(self, step: int, values: dict[str, float]) -> str:
    """The line of a step; see `meter.log_line`."""
    return meter.log_line(step, values)

  def before_save(self) -> None:
    """Raises where replicas differ that the loop does not see."""

  def measure(self) -> metrics.Arrivals | None:
    """What came late since the last record; None where all wait for all."""
    return None

  def epoch_ended(self, record: dict[str, float]) -> None:
    """Takes the record of an epoch that ends, where files are kept."""


class ExecutionContext:
  """Where a run takes place.

  Attributes:
    exchange: says where the workers are; a replica is made on each device.
    data: the examples.
    hooks: what the loop does besides its steps.
  """

  def __init__(
    self, exchange: protocol.Exchange, data: batches.Data, hooks: Hooks
  ) -> None:
    """Takes what all contexts have; see the class."""
    self.exchange = exchange
    self.data = data
    self.hooks = hooks

  def make_step(
    self, training: steps.Training, codec: gradients.GradientCodec
  ) -> steps.Step:
    """The traced step of a training of the exchange."""
    return steps.TrainStep(training, codec)

  def batches(
    self, step: int, shares: Sequence[int] | None = None
  ) -> Iterator[batches.Batch]:
    """The batches from a step on; see `batches.Data.batches`."""
    return self.data.batches(step, shares)

  def placement_scope(self) -> contextlib.AbstractContextManager[None]:
    """The context in which the model's variables are made.

    Those of the first replica, where its own device is not that of all.
    """
    return contextlib.nullcontext()

  def join(self) -> None:
    """Waits for what is under way when the loop ends."""


@contextlib.contextmanager
def refusing_size() -> Iterator[None]:
  """Refuses what TensorFlow has no place for while a run is put together.

  Raises:
    errors.ConfigError: the sizes that were asked for do not fit.
  """
  try:
    yield
  except (
    MemoryError,
    OverflowError,
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
  ) as error:
    said = getattr(error, 'message', str(error))
    raise errors.ConfigError(
      'The run: expected a net and batches that fit into the memory, received: '
      f'{said[:300]} Use a smaller --image_size or --batch_size.'
    ) from error


def remarks(
  codec: gradients.GradientCodec,
  exchange: protocol.Exchange,
  always_float: bool = False,
) -> list[str]:
  """Lines for people: what a worker sends, and what computes codes.

  Args:
    codec: of coded steps.
    exchange: see `ExecutionContext`.
    always_float: `codec` stands in place of another in every step.
  """
  bits = codec.bits(exchange.num_workers) / max(1, codec.num_elements)
  elements: collections.Counter[str] = collections.Counter()
  for bucket in codec.buckets:
    elements[bucket.method.name] += bucket.num_elements
  sent = ', '.join(f'{n:,} as {name}' for name, n in elements.items())
  hint = '; --grad_bits=1 sends 1.6' if codec.lossless else ''
  if always_float:
    hint = ', as --floating_grad_epoch=1 asks'
  lines = [
    f'gradients: {bits:.2f} bits an element are sent{hint} ({sent})',
    f'kernels: {_kernels(exchange.devices)}',
  ]
  turns = [
    fragments.of_step(codec, step) for step in range(codec.num_fragments)
  ]
  if len(turns) > 1:
    sizes = ', '.join(f'{own.num_elements:,}' for own in turns)
    lines.append(f'fragments: {sizes} elements, exchanged in turns')
  if isinstance(exchange, collective.Collective) and exchange.group.size > 1:
    codec = max(turns, key=lambda own: own.num_words)
    rounds = range(codec.num_rounds)
    messages = [m for number in rounds for m in codec.messages(number)]
    lines.append(exchange.told(messages))
  return lines


def _kernels(devices: Sequence[str]) -> str:
  kinds = {tf.DeviceSpec.from_string(name).device_type for name in devices}
  if kinds != {'CPU'}:
    return 'compiled by XLA'
  computed = f'oneDNN {"on" if onednn.is_on() else "off"} for the passes'
  if native.available():
    return f'native ({native.instruction_set()}); {computed}'
  return (
    f'compiled by XLA, slower and to the same bits; {computed}; native ones '
    f'are not used, {native.why_not()}'
  )
