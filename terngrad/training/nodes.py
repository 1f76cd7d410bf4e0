"""The gradients of the virtual nodes of one device.

The nodes of a device share its replica and run one after the other in a
`tf.while_loop` with `parallel_iterations=1`: a node's activations are freed
before the next node's begin, and the graph is the same for 1 node and for 64.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import bucket_keys
from terngrad.codec import random_bits
from terngrad.training import losses
from terngrad.training import one_by_one


class Pass(NamedTuple):
  """A model's loss as pure functions.

  Attributes:
    gradients: takes (parameters, held, images, labels, key, scale), lists of
      tensors, a node's batch, its uint32 [2] key and the float32 [] that the
      loss is multiplied with before it is differentiated and its gradients
      are divided by, None or left out for 1; returns (list of gradients,
      entropy loss float32 [], list of new statistics). `held` are the moving
      statistics and then the frozen parameters.
    decay: takes the parameters, None in place of those that are not asked
      for; returns the gradients of those of their L2 terms that belong in the
      compressed gradient, None where a parameter has none.
    shrink: the same for those that the update applies by itself; None where
      it applies none.
    regularization: takes the parameters, returns the sum of their L2 terms,
      float32 [].
    num_statistics: how many of `held` are moving statistics.
  """

  gradients: Callable
  decay: Callable
  shrink: Callable | None
  regularization: Callable
  num_statistics: int


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
  """What the nodes of one device computed for a part, one entry a node.

  Attributes:
    kept: TensorArray of what `Kernels.keep` makes of a node's gradients: the
      one thing that a further node costs. A `one_by_one.Single` of that where
      there is one node.
    probes: float32 [nodes, probes], see `GradientCodec.probe`.
    entropy: float32 [nodes], mean over a node's examples.
    statistics: list of float32 [nodes, ...].
  """

  kept: tf.TensorArray
  probes: tf.Tensor
  entropy: tf.Tensor
  statistics: list


def model_pass(model, plan, loss=losses.PLAIN, decoupled=False):
  """The pass of a Keras classifier, by `model.stateless_call`.

  Args:
    model: maps images to logits [b, classes], or to a list of them and the
      logits of auxiliary heads.
    plan: its `replicas.Layout`.
    loss: `losses.Loss`.
    decoupled: True leaves the L2 terms out of the compressed gradient, for the
      update to apply.

  Returns:
    A `Pass`. L2 terms are those of the variables' own regularizers.
  """

  def run(parameters, held, images, labels, key, scale=None):
    state = _with_seeds(plan, held, key)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      outputs, state = model.stateless_call(
        parameters, state, images, training=True
      )
      entropy = losses.entropy(loss, outputs, labels)
      target = entropy if scale is None else entropy * scale
    # A parameter that the loss does not reach has a gradient of zeros.
    result = tape.gradient(
      target,
      parameters,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    if scale is not None:
      result = [gradient / scale for gradient in result]
    places = dict(zip(plan.places, state, strict=True))
    return result, entropy, [places[i] for i in range(len(plan.statistics))]

  def regularization(parameters):
    terms = [
      variable.regularizer(parameter)
      for variable, parameter in zip(plan.trainable, parameters, strict=True)
      if variable.regularizer is not None and parameter is not None
    ]
    return tf.add_n([tf.constant(0.0), *terms])

  def decay(parameters):
    asked = [p for p in parameters if p is not None]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(asked)
      loss = regularization(parameters)
    found = iter(tape.gradient(loss, asked))
    return [p if p is None else next(found) for p in parameters]

  def nothing(parameters):
    return [None] * len(parameters)

  return Pass(
    gradients=run,
    decay=nothing if decoupled else decay,
    shrink=decay if decoupled else None,
    regularization=regularization,
    num_statistics=len(plan.statistics),
  )


def _with_seeds(plan, held, key):
  """The model's non-trainable values, with a dropout seed a layer from `key`.

  Layers fold in negative numbers; the codes fold in the place of a bucket.
  """
  return [
    random_bits.fold_in(key, tf.constant(-1 - i))
    if place is None
    else held[place]
    for i, place in enumerate(plan.places)
  ]


class Kernels(NamedTuple):
  """The compiled parts of a node's work.

  Attributes:
    finish: takes the lists (gradients, parameters) of the whole model, returns
      (the part's gradients with those of the L2 terms, their probe float32
      [probes]).
    keep: takes (gradients, own, seed, step, worker, stacked), returns what
      waits until the shared probe is known: the gradients as float32
      [elements], or, where they are not stacked, as they are, if `encode` takes
      them as fast; int32 [words] where the codec thins.
    kept: (dtype, shape) of what is stacked.
    num_probes: of a worker.
    encode: takes (what was kept, own, shared, seed, step, worker), returns
      int32 [words].
  """

  finish: Callable
  keep: Callable
  kept: tuple
  num_probes: int
  encode: Callable


def kernels(node_pass, codec, indices=None):
  """Compiles a node's side of a `codec.gradients.GradientCodec`.

  Args:
    node_pass: `Pass`.
    codec: of a part of the model.
    indices: the places of the part's variables, see `codec.parts.Part`; None
      for the whole model.

  Returns:
    `Kernels`.
  """

  def compiled(function):
    return tf.function(function, jit_compile=True)

  def add_decay(results, parameters):
    results = [
      g if d is None else g + d
      for g, d in zip(results, node_pass.decay(parameters), strict=True)
      if g is not None
    ]
    return results, codec.probe(results)

  def finish(results, parameters):
    # What a part has no use for it must not wait for.
    return add_decay(*(only(indices, v) for v in (results, parameters)))

  def derive(seed, step, worker):
    return codec.keys(seed, step, worker)

  if not codec.compiled:
    # Some hundred operations on a few numbers: compiled, they cost nothing.
    derive = compiled(derive)

  def encode(values, own, shared, *numbers):
    return codec.encode(values, own, shared, derive(*numbers))

  def thin(words, own, shared, *numbers):
    return codec.thin(words, own, shared, derive(*numbers))

  if codec.compiled:
    add_decay, thin = compiled(add_decay), compiled(thin)
    # Plain floats are sent as they are, and compiled code would copy them.
    encode = encode if codec.lossless else compiled(encode)

  def keep(values, own, *numbers_and_stacked):
    *numbers, stacked = numbers_and_stacked
    # Not in the compiled part: XLA's concatenation is five times slower.
    if codec.compiled or (stacked and not codec.thins):
      values = codec.flatten(values)
    return encode(values, own, own, *numbers) if codec.thins else values

  floats = tf.float32, [codec.num_elements]
  return Kernels(
    finish=finish,
    keep=keep,
    kept=(tf.int32, [codec.num_words]) if codec.thins else floats,
    num_probes=codec.num_probes,
    encode=thin if codec.thins else encode,
  )


def only(indices, values):
  """A list with None in place of what is not of a part; see `kernels`."""
  if indices is None:
    return list(values)
  return [v if i in indices else None for i, v in enumerate(values)]


def run(node_pass, kernel, *where_and_what):
  """`run_parts` of a model in one piece; a `DeviceRound`."""
  return run_parts(node_pass, [kernel], *where_and_what)[0]


def run_parts(node_pass, some, replica, workers, batch, seed_and_step):
  """Runs the forward and backward passes of the nodes of one device.

  Args:
    node_pass: `Pass`.
    some: list of `Kernels`, one a part of the model.
    replica: `replicas.Replica` of the device.
    workers: range of the workers that live there.
    batch: `Batch`.
    seed_and_step: pair of int64 [].

  Returns:
    List of `DeviceRound`, one a part.
  """
  with tf.device(replica.device):
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    statistics = [tf.convert_to_tensor(v) for v in replica.statistics]
    held = [*statistics, *(tf.convert_to_tensor(v) for v in replica.frozen)]
    scale = [tf.convert_to_tensor(v) for v in replica.scaling[:1]]

    def body(worker):
      key = bucket_keys.worker_key(*seed_and_step, worker)
      row = worker - batch.first
      results, entropy, moments = node_pass.gradients(
        parameters, held, batch.images[row], batch.labels[row], key, *scale
      )
      kept, probes = [], []
      for kernel in some:
        own, probe = kernel.finish(results, parameters)
        kept.append(
          kernel.keep(own, probe, *seed_and_step, worker, len(workers) > 1)
        )
        probes.append(probe)
      return [*kept, *probes, entropy, *moments]

    shapes = [
      *([k.num_probes] for k in some),
      [],
      *(s.shape for s in statistics),
    ]
    specs = [
      *(k.kept for k in some),
      *((tf.float32, shape) for shape in shapes),
    ]
    arrays = one_by_one.for_each(replica.device, workers, specs, body)
    kept, rest = arrays[: len(some)], arrays[len(some) :]
    stacked = [array.stack() for array in rest]
    probes, (entropy, *moments) = stacked[: len(some)], stacked[len(some) :]
    return [
      DeviceRound(*pair, entropy, moments)
      for pair in zip(kept, probes, strict=True)
    ]


def encode(kernel, device_round, shared, replica, workers, seed_and_step):
  """The payloads of the nodes of one device.

  Args:
    kernel: `Kernels`.
    device_round: what `run` returned.
    shared: float32 [probes], the agreed probe.
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
        device_round.kept.read(node),
        device_round.probes[node],
        shared,
        *seed_and_step,
        worker,
      )
    ]

  with tf.device(replica.device):
    specs = [(tf.int32, None)]
    (payloads,) = one_by_one.for_each(replica.device, workers, specs, body)
    return payloads.stack()
