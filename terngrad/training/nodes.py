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
  """A forward and backward pass as a pure function.

  Attributes:
    gradients: takes (parameters, statistics, images, labels, key), lists of
      tensors, a node's batch and its uint32 [2] key; returns (list of
      gradients, entropy loss float32 [], list of new statistics).
    regularization: takes (parameters), returns (loss float32 [], list of
      gradients or None where a parameter has none).
  """

  gradients: Callable
  regularization: Callable


class DeviceRound(NamedTuple):
  """What the nodes of one device computed, one entry a node.

  Attributes:
    gradients: TensorArray of float32 [elements], all variables of a node, its
      L2 terms included: the one thing that a further node costs.
    probes: float32 [nodes, variables].
    entropy: float32 [nodes], mean over a node's examples.
    regularization: float32 [], the same for all nodes.
    statistics: list of float32 [nodes, ...].
  """

  gradients: tf.TensorArray
  probes: tf.Tensor
  entropy: tf.Tensor
  regularization: tf.Tensor
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
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      loss = tf.constant(0.0)
      for variable, parameter in zip(plan.trainable, parameters, strict=True):
        if variable.regularizer is not None:
          loss += variable.regularizer(parameter)
    return loss, tape.gradient(loss, parameters)

  return Pass(run, regularization)


def _with_seeds(plan, statistics, key):
  """The model's non-trainable values, with a dropout seed a layer from `key`.

  Layers fold in negative numbers; the codes of variables fold in their index.
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
    probe: takes float32 [elements], returns float32 [variables].
    encode: takes (float32 [elements], own, shared, seed, step, worker), returns
      int32 [words].
  """

  probe: Callable
  encode: Callable


def kernels(codec):
  """Compiles the node's side of a `codec.gradients.GradientCodec`."""

  @tf.function(jit_compile=True)
  def probe(flat):
    return codec.probe(codec.split(flat))

  @tf.function(jit_compile=True)
  def encode(flat, own, shared, seed, step, worker):
    key = gradients.worker_key(seed, step, worker)
    return codec.encode(codec.split(flat), own, shared, key)

  return Kernels(probe, encode)


def run(node_pass, kernel, replica, workers, batch, seed_and_step):
  """Runs the forward and backward passes of the nodes of one device.

  Args:
    node_pass: `Pass`.
    kernel: `Kernels`.
    replica: `replicas.Replica` of the device.
    workers: range of the workers that live there.
    batch: pair (images [all workers, b, ...], labels [all workers, b]).
    seed_and_step: pair of int64 [].

  Returns:
    A `DeviceRound`.
  """
  images, labels = batch
  with tf.device(replica.device):
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    statistics = [tf.convert_to_tensor(v) for v in replica.statistics]
    decay_loss, decay = node_pass.regularization(parameters)

    def body(worker):
      key = gradients.worker_key(*seed_and_step, worker)
      results, entropy, moments = node_pass.gradients(
        parameters, statistics, images[worker], labels[worker], key
      )
      flat = _flatten(results, decay)
      return [flat, kernel.probe(flat), entropy, *moments]

    size = sum(parameter.shape.num_elements() for parameter in parameters)
    shapes = [[size], [len(parameters)], [], *(s.shape for s in statistics)]
    flats, *rest = _for_each(replica.device, workers, tf.float32, shapes, body)
    probes, entropy, *moments = [array.stack() for array in rest]
    return DeviceRound(flats, probes, entropy, decay_loss, moments)


def _flatten(results, decay):
  """Gradients with their L2 terms as one vector.

  Not compiled: XLA makes one loop of the sums and the concatenation that
  branches at every element, ten times slower than these kernels.
  """
  results = [
    g if d is None else g + d for g, d in zip(results, decay, strict=True)
  ]
  return tf.concat([tf.reshape(g, [-1]) for g in results], axis=0)


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
