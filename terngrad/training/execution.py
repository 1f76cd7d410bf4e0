"""Where a run takes place, and what a loop does there besides its steps."""

import collections
import contextlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import tensorflow as tf

from terngrad import errors
from terngrad import native
from terngrad.cluster import onednn
from terngrad.exchange import collective
from terngrad.exchange import protocol
from terngrad.reduce import fragments
from terngrad.training import batches
from terngrad.training import meter


class Hooks(NamedTuple):
  """What a loop does besides its steps.

  Attributes:
    time_limit: takes the name of something that waits for other processes,
      returns a context that ends the process where it takes too long.
    own_limit: likewise of what this process does by itself, which may wait too:
      TensorFlow tells every task of a cluster with parameter servers of each
      function and kind of operation that the chief meets for the first time.
    log_every: steps between two lines.
    line: takes (step, values), returns the line; see `meter.log_line`.
    save_secs: seconds between checkpoints, beside those of save_iter.
    observe_secs: seconds between histograms, beside those of save_iter.
    before_save: called before every checkpoint; raises where replicas differ
      that the loop does not see.
    measure: called for every record; returns `metrics.Arrivals`, or None where
      every step waits for all.
    epoch_ended: called with the record of each epoch that ends, a dict of name
      to number, where files are kept.
  """

  time_limit: Callable = nullcontext
  own_limit: Callable = nullcontext
  log_every: int = 10
  line: Callable = meter.log_line
  save_secs: float = float('inf')
  observe_secs: float = float('inf')
  before_save: Callable = lambda: None
  measure: Callable = lambda: None
  epoch_ended: Callable = lambda record: None


class ExecutionContext(NamedTuple):
  """Where a run takes place.

  Attributes:
    exchange: `exchange.towers.Towers` or `exchange.collective.Collective`,
      which says where the workers are; a replica is made on each device.
    data: `batches.Data`.
    make_step: takes (`step.Training` of the exchange, codec), returns a traced
      step; see `step.make_train_step`.
    local_devices: the device indices of the replicas that the loop saves and
      looks at.
    hooks: `Hooks`.
    assert_same: takes the configuration and what was built, by name; raises
      `errors.ConfigError` where another process has something else.
    placement_scope: returns the context in which the model's variables are
      made, those of the first replica, where its own device is not that of all.
  """

  exchange: protocol.Exchange
  data: batches.Data
  make_step: Callable
  local_devices: range
  hooks: Hooks
  assert_same: Callable = lambda *told, **built: None
  placement_scope: Callable = nullcontext


@contextlib.contextmanager
def refusing_size():
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


def remarks(codec, exchange, always_float=False):
  """Lines for people: what a worker sends, and what computes codes.

  Args:
    codec: `gradients.GradientCodec`.
    exchange: see `ExecutionContext`.
    always_float: `codec` stands in place of another in every step.

  Returns:
    List of lines.
  """
  bits = codec.bits(exchange.num_workers) / max(1, codec.num_elements)
  elements = collections.Counter()
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


def _kernels(devices):
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
