"""A method under test: its codec, gradients, and what it makes of them."""

import functools
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import policy
from terngrad.exchange import towers
from terngrad.reduce import bucketing
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients
from terngrad.reduce import workers

# A matrix, a scalar, an empty variable, and one that is longer than a block of
# rotations and than a group.
SHAPES = ((5, 7), (), (0, 3), (4999,))
WORKERS = 3
# Steps taken before the step under test.
STEP = 2
_SEED = 1
_RNG_SEED = 20170522

Arrays = Sequence[np.ndarray]


def rng() -> np.random.Generator:
  """Returns NumPy's generator, which shares no stream with the codes."""
  return np.random.default_rng(_RNG_SEED)


class MethodUnderTest:
  """One method, and results that several claims use.

  Attributes:
    text: its name, for messages.
    make: returns a new instance of the method for a number of workers.
  """

  def __init__(self, text: str, make: Callable[[int], methods.Method]) -> None:
    """Takes the name and the maker."""
    self.text, self.make = text, make

  @functools.cached_property
  def method(self) -> methods.Method:
    """An instance of the method for 3 workers."""
    return self.make(WORKERS)

  @functools.cached_property
  def method_alone(self) -> methods.Method:
    """The method for one worker: another only if it sends parts to workers."""
    messages = (m for one in self.method.messages(SHAPES) for m in one)
    scatters = any(m.combine == methods.SCATTER for m in messages)
    return self.make(1) if scatters else self.method

  def codec_for(
    self,
    shapes: Sequence[tuple[int, ...]],
    method: methods.Method | None = None,
  ) -> gradients.GradientCodec:
    """Returns the codec of variables of these shapes, in one bucket."""
    specs = [policy.VariableSpec(str(i), s) for i, s in enumerate(shapes)]
    method = method or self.method
    return bucketing.gradient_codec(specs, [method] * len(specs))

  @functools.cached_property
  def codec(self) -> gradients.GradientCodec:
    """The codec of variables of `SHAPES`."""
    return self.codec_for(SHAPES)

  @property
  def bucket(self) -> buckets_lib.Bucket:
    """The only bucket of `codec`."""
    (bucket,) = self.codec.buckets
    return bucket

  @functools.cached_property
  def worker_gradients(self) -> list[list[np.ndarray]]:
    """Each worker's gradients: three scales, with heavy tails."""
    draw = rng().standard_t
    return [
      [
        np.array(draw(3, size=shape) * 10.0 ** (index % 3), np.float32)
        for index, shape in enumerate(SHAPES)
      ]
      for _ in range(WORKERS)
    ]

  @functools.cached_property
  def outcome(self) -> workers.StepOutcome:
    """The step of all workers with `worker_gradients`."""
    group = workers.Workers(self.codec, WORKERS)
    return group.take(self.codec, self.worker_gradients, STEP)

  @functools.cached_property
  def means(self) -> list[np.ndarray]:
    """The decoded means of `worker_gradients`."""
    return [mean.numpy() for mean in self.outcome.means]

  @property
  def decoding_step(self) -> gradients.WorkerStep:
    """The step with which `decode` gets the words of `outcome`."""
    probe = self.outcome.steps[0].shared_probe
    step = tf.constant(STEP, tf.int64)
    return gradients.WorkerStep(_SEED, step, WORKERS, shared_probe=probe)

  def step(
    self,
    values: Sequence[Arrays],
    codec: gradients.GradientCodec | None = None,
    number: int = STEP,
    exchange: type[towers.Towers] = towers.Towers,
  ) -> list[np.ndarray]:
    """Returns the means of one step of all workers, from initial states."""
    if codec is None:
      alone = len(values) == 1
      codec = self.codec_for(SHAPES, self.method_alone if alone else None)
    group = workers.Workers(codec, len(values), exchange)
    return [mean.numpy() for mean in group.take(codec, values, number).means]

  def begin(
    self, values: Arrays, worker: int, step_number: int = STEP
  ) -> tuple[
    gradients.BucketTensors,
    tf.Tensor,
    list[list[tf.Tensor | None]],
    gradients.WorkerStep,
  ]:
    """Returns carried gradients, probe, states and step of one worker."""
    number, index = tf.constant(step_number, tf.int64), tf.constant(worker)
    keys = self.codec.keys(_SEED, number, index)
    step = gradients.WorkerStep(_SEED, number, WORKERS, index, keys)
    states = workers.Workers(self.codec, 1).states(0)
    tensors = [tf.constant(value) for value in values]
    carried, probe = self.codec.begin(tensors, states, step)
    return carried, probe, states, step

  def words_of(
    self,
    values: Arrays,
    worker: int,
    shared_probe: tf.Tensor | None = None,
    number: int = STEP,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a worker's words of the first round, and its probe.

    `shared_probe` None takes the local probe in its place.
    """
    carried, probe, states, step = self.begin(values, worker, number)
    step = step._replace(
      local_probe=probe,
      shared_probe=probe if shared_probe is None else shared_probe,
    )
    carried = self.codec.carry(carried, step)
    return self.codec.send(0, carried, states, [], step)[0], probe

  @functools.cached_property
  def first_words(self) -> tuple[tf.Tensor, tf.Tensor]:
    """`words_of` the first worker."""
    return self.words_of(self.worker_gradients[0], 0)
