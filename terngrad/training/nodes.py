"""The gradients of the virtual nodes of one device.

The nodes of a device share its replica and run one after the other in a
`tf.while_loop` with `parallel_iterations=1`: a node's activations are freed
before the next node's begin, and the graph is the same for 1 node and for 64.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import gradients
from terngrad.codec import random_bits


class Pass(NamedTuple):
  """A model's loss as pure functions.

  Attributes:
    gradients: takes (parameters, statistics, images, labels, key), lists of
      tensors, a node's batch and its uint32 [2] key; returns (list of
      gradients, entropy loss float32 [], list of new statistics).
    decay: takes the parameters, returns the gradients of their L2 terms, None
      where a parameter has none.
    regularization: takes the parameters, returns the sum of their L2 terms,
      float32 [].
  """

  gradients: Callable
  decay: Callable
  regularization: Callable


class Batch(NamedTuple):
  """The examples of a step that are this process's.

  Attributes:
    images: [workers of this process, b, ...].
    labels: int32 [workers of this process, b].
    first: the worker that the first row is of.
  """

  images: tf.Tensor
  labels: tf.Tensor
  first: int


class DeviceRound(NamedTuple):
  """What the nodes of one device computed, one entry a node.

  Attributes:
    gradients: TensorArray of float32 [elements], all variables of a node, its
      L2 terms included: the one thing that a further node costs. A `_Single`
      of that, or of a list of the variables', where there is one node.
    probes: float32 [nodes, variables].
    entropy: float32 [nodes], mean over a node's examples.
    statistics: list of float32 [nodes, ...].
  """

  gradients: tf.TensorArray
  probes: tf.Tensor
  entropy: tf.Tensor
  statistics: list


def model_pass(model, plan):
  """The pass of a Keras classifier, by `model.stateless_call`.

  Args:
    model: maps images to logits [b, classes].
    plan: its `replicas.Layout`.

  Returns:
    A `Pass`. The entropy loss is the mean softmax cross entropy; L2 terms are
    those of the variables' own regularizers.
  """

  def run(parameters, statistics, images, labels, key):
    state = _with_seeds(plan, statistics, key)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      logits, state = model.stateless_call(
        parameters, state, images, training=True
      )
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      entropy = tf.reduce_mean(losses)
    # A parameter that the loss does not reach has a gradient of zeros.
    result = tape.gradient(
      entropy,
      parameters,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    new = [s for i, s in enumerate(state) if i not in plan.seeds]
    return result, entropy, new

  def regularization(parameters):
    terms = [
      variable.regularizer(parameter)
      for variable, parameter in zip(plan.trainable, parameters, strict=True)
      if variable.regularizer is not None
    ]
    return tf.add_n([tf.constant(0.0), *terms])

  def decay(parameters):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      loss = regularization(parameters)
    return tape.gradient(loss, parameters)

  return Pass(run, decay, regularization)


def _with_seeds(plan, statistics, key):
  """The model's non-trainable values, with a dropout seed a layer from `key`.

  Layers fold in negative numbers; the codes fold in the place of a bucket.
  """
  rest = iter(statistics)
  return [
    random_bits.fold_in(key, tf.constant(-1 - i))
    if i in plan.seeds
    else next(rest)
    for i in range(plan.non_trainable)
  ]


class Kernels(NamedTuple):
  """The compiled parts of a node's work.

  Attributes:
    finish: takes (gradients, parameters), returns (the gradients with those of
      the L2 terms, their probe float32 [variables]).
    flatten: takes the gradients, returns float32 [elements].
    encode: takes (the gradients, flat or not, own, shared, seed, step, worker),
      returns int32 [words].
    wants_flat: True where `encode` is faster for flat gradients.
  """

  finish: Callable
  flatten: Callable
  encode: Callable
  wants_flat: bool


def kernels(node_pass, codec):
  """Compiles a node's side of a `codec.gradients.GradientCodec`."""

  def compiled(function):
    return tf.function(function, jit_compile=True)

  def finish(results, parameters):
    results = [
      g if d is None else g + d
      for g, d in zip(results, node_pass.decay(parameters), strict=True)
    ]
    return results, codec.probe(results)

  def derive(seed, step, worker):
    return codec.keys(gradients.worker_key(seed, step, worker))

  if not codec.compiled:
    # Some hundred operations on a few numbers: compiled, they cost nothing.
    derive = compiled(derive)

  def encode(values, own, shared, *numbers):
    return codec.encode(values, own, shared, derive(*numbers))

  if not codec.compiled:
    return Kernels(finish, codec.flatten, encode, wants_flat=False)
  return Kernels(
    finish=compiled(finish),
    flatten=codec.flatten,
    # Plain floats are sent as they are, and compiled code would copy them.
    encode=encode if codec.lossless else compiled(encode),
    wants_flat=True,
  )


def run(node_pass, kernel, replica, workers, batch, seed_and_step):
  """Runs the forward and backward passes of the nodes of one device.

  Args:
    node_pass: `Pass`.
    kernel: `Kernels`.
    replica: `replicas.Replica` of the device.
    workers: range of the workers that live there.
    batch: `Batch`.
    seed_and_step: pair of int64 [].

  Returns:
    A `DeviceRound`.
  """
  with tf.device(replica.device):
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    statistics = [tf.convert_to_tensor(v) for v in replica.statistics]

    def body(worker):
      key = gradients.worker_key(*seed_and_step, worker)
      row = worker - batch.first
      results, entropy, moments = node_pass.gradients(
        parameters, statistics, batch.images[row], batch.labels[row], key
      )
      results, probe = kernel.finish(results, parameters)
      # Not in the compiled part: XLA's concatenation is five times slower.
      if len(workers) > 1 or kernel.wants_flat:
        results = kernel.flatten(results)
      return [results, probe, entropy, *moments]

    size = sum(parameter.shape.num_elements() for parameter in parameters)
    shapes = [[size], [len(parameters)], [], *(s.shape for s in statistics)]
    flats, *rest = _for_each(replica.device, workers, tf.float32, shapes, body)
    probes, entropy, *moments = [array.stack() for array in rest]
    return DeviceRound(flats, probes, entropy, moments)


def encode(kernel, device_round, shared, replica, workers, seed_and_step):
  """The payloads of the nodes of one device.

  Args:
    kernel: `Kernels`.
    device_round: what `run` returned.
    shared: float32 [variables], the agreed probe.
    replica: `replicas.Replica` of the device.
    workers: range of the workers that live there.
    seed_and_step: pair of int64 [].

  Returns:
    int32 [nodes, words].
  """

  def body(worker):
    node = (worker - workers.start) // workers.step
    return [
      kernel.encode(
        device_round.gradients.read(node),
        device_round.probes[node],
        shared,
        *seed_and_step,
        worker,
      )
    ]

  with tf.device(replica.device):
    (payloads,) = _for_each(replica.device, workers, tf.int32, [None], body)
    return payloads.stack()


def _for_each(device, workers, dtype, shapes, body):
  """TensorArrays of what `body(worker)` returns, one worker after the other."""
  if len(workers) == 1:
    # Without the loop nothing has to be stacked, that is copied.
    with tf.device(device):
      return [_Single(value) for value in body(tf.constant(workers.start))]
  arrays = [
    tf.TensorArray(dtype, size=len(workers), element_shape=shape)
    for shape in shapes
  ]

  def iterate(node, arrays):
    with tf.device(device):
      values = body(workers.start + node * workers.step)
      return node + 1, [
        array.write(node, value)
        for array, value in zip(arrays, values, strict=True)
      ]

  _, arrays = tf.while_loop(
    lambda node, _: node < len(workers),
    iterate,
    (tf.constant(0), arrays),
    parallel_iterations=1,
  )
  return arrays


class _Single(NamedTuple):
  """What stands for a TensorArray of one element."""

  value: tf.Tensor

  def read(self, index):
    """The element."""
    del index
    return self.value

  def stack(self):
    """The element with a leading axis; no copy."""
    return tf.expand_dims(self.value, 0)
