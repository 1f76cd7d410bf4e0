"""The parts of a model, and the compiled programs of each.

XLA may fuse a product and a sum of one program into a single rounding, so the
borders between programs decide the bits of the result. The programs are: keys;
begin, with the L2 terms; carry; the send of each round; decode; finish. Methods
with native kernels are not compiled here.
"""

import collections
import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import ParamSpec
from typing import TypeVar
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import part_programs
from terngrad.reduce import weight_decay

_P = ParamSpec('_P')
_T = TypeVar('_T')
_Keys = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@functools.cache
def _keys_program(
  streams: tuple[tuple[int, int], ...], compiles: bool
) -> _Keys:
  """Returns `random_bits.bucket_keys` of these streams as a program.

  All models of the process share it, because XLA takes 0.2 s to compile it.
  """
  draw = functools.partial(random_bits.bucket_keys, streams)
  return tracing.on_host(part_programs.compile_if(compiles, draw))


class Part:
  """Variables that are sent together, with the programs of a worker.

  XLA compiles the programs, unless native kernels or plain copies are faster.

  Attributes:
    number: index of the part, in the order in which parts are sent.
    codec: of these variables only.
    indices: indices of the variables in the model, ascending.
    probes: int array, indices of the part's numbers in the model's probe.
    send: program of `GradientCodec.send`. A compiled one returns the words as
      float32, see `transport`.
    finish: program of `GradientCodec.finish`.
    decode: program of `GradientCodec.decode`.
  """

  def __init__(
    self,
    number: int,
    buckets: Sequence[buckets_lib.Bucket],
    probe_variables: np.ndarray,
  ) -> None:
    """Takes the buckets of a part; call `use` before the programs.

    Args:
      number: index of the part.
      buckets: of these variables, with their indices in the model.
      probe_variables: variable's index of each number of the model's probe.
    """
    self.number = number
    self.indices = tuple(sorted(i for b in buckets for i in b.indices))
    self.probes = np.flatnonzero(np.isin(probe_variables, self.indices))
    self.codec = gradients_lib.GradientCodec(
      tuple(
        bucket._replace(indices=tuple(map(self.indices.index, bucket.indices)))
        for bucket in buckets
      )
    )

  def use(
    self, programs: part_programs.PartPrograms, compiles: bool, shared: bool
  ) -> None:
    """Sets the programs.

    Args:
      programs: of the part's layout.
      compiles: whether XLA compiles the program of the keys.
      shared: whether other parts use the same programs.
    """
    buckets = self.codec.buckets
    streams = tuple((one.stream, one.method.strata) for one in buckets)
    self._programs = programs
    self._keys = _keys_program(streams, compiles)
    self._origins = part_programs.origins_of(self.codec) if shared else None
    self.send = self._moved(programs.send)
    self.finish = self._moved(programs.finish)
    self.decode = self._moved(programs.decode)

  def select(self, values: Sequence[_T]) -> list[_T]:
    """Selects the values of the part's variables; () stays empty.

    The programs of the part do not wait for other values.
    """
    return [values[i] for i in self.indices] if values else []

  def begin(
    self,
    gradients: Sequence[tf.Tensor],
    parameters: Sequence[tf.Tensor],
    states: gradients_lib.BucketTensors,
    step: gradients_lib.WorkerStep,
  ) -> tuple[gradients_lib.BucketTensors, tf.Tensor]:
    """Adds the gradients of the L2 terms, then calls `GradientCodec.begin`.

    Args:
      gradients: float32, from `select`.
      parameters: float32, from `select`.
      states: the worker's states and the shared ones.
      step: with a worker; without keys, since no method draws random bits
        before the probe.
    """
    return self._programs.begin(gradients, parameters, states, self._at(step))

  def begin_plain(
    self,
    gradients: Sequence[tf.Tensor],
    parameters: Sequence[tf.Tensor],
    step: gradients_lib.WorkerStep,
  ) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Calls `begin` for plain methods, without copying gradients.

    Args:
      gradients: as in `begin`.
      parameters: as in `begin`.
      step: with a worker.

    Returns:
      (gradients in the order and shapes of the part's variables, probe).
    """
    changed, probe = self._programs.begin_plain(
      gradients, parameters, self._at(step)
    )
    values = [
      before if after is None else after
      for before, after in zip(gradients, changed, strict=True)
    ]
    return values, probe

  def carry(
    self,
    carried: gradients_lib.BucketTensors,
    step: gradients_lib.WorkerStep,
    stacked: bool,
  ) -> gradients_lib.BucketTensors:
    """Converts `begin`'s gradients to what a worker holds until it sends.

    Args:
      carried: from `begin`.
      step: with the worker's probe.
      stacked: True makes one tensor per bucket, for a `tf.TensorArray`.

    Returns:
      For each bucket a list of float32 tensors; words as in `transport`.
    """
    buckets = self.codec.buckets
    # Outside of the compiled program: XLA concatenates five times slower.
    if self.codec.compiled or stacked:
      carried = [
        values if bucket.method.carries else [methods.flat(values)]
        for bucket, values in zip(buckets, carried, strict=True)
      ]
    if any(bucket.method.carries for bucket in buckets):
      step = self._at(self.add_keys(step))
      carried = self._programs.requantize(carried, step)
    return carried

  def add_keys(
    self, step: gradients_lib.WorkerStep
  ) -> gradients_lib.WorkerStep:
    """Adds the worker's random keys, unless compiled programs derive them."""
    if self.codec.compiled:
      return step
    # Hundreds of operations on a few numbers cost nothing once compiled.
    seed = tf.cast(step.seed, tf.int64)
    return step._replace(keys=self._keys(seed, step.step, step.worker))

  def _moved(self, program: Callable[_P, _T]) -> Callable[_P, _T]:
    """Returns a program whose last argument, a step, gets the origins."""
    if self._origins is None:
      return program

    def call(*arguments: Any) -> _T:
      *others, step = arguments
      return cast(Callable[..., _T], program)(*others, self._at(step))

    return cast(Callable[_P, _T], call)

  def _at(self, step: gradients_lib.WorkerStep) -> gradients_lib.WorkerStep:
    """Adds the origins of the buckets, if other parts use the programs too."""
    if self._origins is None:
      return step
    return step._replace(origins=tf.constant(self._origins, tf.int64))


def parts(
  codec: gradients_lib.GradientCodec,
  decay: weight_decay.WeightDecay | None = None,
  compiles: bool = True,
) -> list[Part]:
  """Makes the parts of a codec, in the order in which they are sent.

  Parts of equal layout share their programs, also with those of other models;
  XLA compiles them at the first call.

  Args:
    codec: cut into parts or not.
    decay: the L2 terms of all parameters of the model; None for none.
    compiles: False compiles nothing.
  """
  part_buckets: dict[int, list[buckets_lib.Bucket]] = {}
  for bucket in sorted(codec.buckets, key=lambda bucket: bucket.part):
    part_buckets.setdefault(bucket.part, []).append(bucket)
  probe_variables = codec.probed_variables()
  found = [
    Part(number, buckets, probe_variables)
    for number, buckets in enumerate(part_buckets.values())
  ]
  owns = [decay and decay.part(part.indices) for part in found]
  layouts = [
    part_programs.PartLayout.of(part.codec, own)
    if compiles and part.codec.compiled
    else None
    for part, own in zip(found, owns, strict=True)
  ]
  counts = collections.Counter(layouts)
  for part, own, layout in zip(found, owns, layouts, strict=True):
    if layout is None:
      # What is not compiled costs nothing, and knows more when it is traced.
      plain = part_programs.PartPrograms(part.codec, own, compiles=False)
      part.use(plain, compiles, shared=False)
    elif counts[layout] > 1:
      part.use(part_programs.shared(layout), compiles, shared=True)
    else:
      part.use(part_programs.shared(layout.fixed()), compiles, shared=False)
  return found


def join_probes(all_parts: list[Part], probes: list[tf.Tensor]) -> tf.Tensor:
  """Joins the probes of all parts to the probe of the model.

  Args:
    all_parts: all parts.
    probes: for each part float32 [..., its probes].

  Returns:
    float32 [..., probes], in the order of the model's variables.
  """
  if len(all_parts) == 1:
    return probes[0]
  order = np.argsort(np.concatenate([part.probes for part in all_parts]))
  return tf.gather(tf.concat(probes, axis=-1), order, axis=-1)
