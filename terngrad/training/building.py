"""Builds the network and the local steps of a run."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from slim.nets import factory as nets
from slim.nets.blocks import batch_norm
from terngrad.codec import policy
from terngrad.config import devices as devices_options
from terngrad.config import model as model_options
from terngrad.config import optimizer as optimizer_options
from terngrad.passes import local_steps
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.step import passes
from terngrad.step import precision
from terngrad.step import synchronized
from terngrad.training import execution


def build_net(
  options: model_options.TrainModelOptions,
  image_size: int,
  is_synchronized: bool,
  context: execution.ExecutionContext,
) -> keras.Model:
  """Builds the network with its initial values on the first device.

  `image_size` is the height and width of the input, in pixels.
  `is_synchronized` selects synchronized batch normalization.
  """
  # Keras takes an int32 seed. Codecs use all 64 bits of the run's seed.
  seed = options.seed % 2**31
  with context.placement_scope():
    keras.utils.set_random_seed(seed)
    with (
      tf.device(context.exchange.devices[0]),
      precision.layer_dtype(options.dtype),
    ):
      model = nets.build(
        options.net,
        num_classes=context.data.num_classes,
        image_size=image_size,
        channels=context.data.channels,
        weight_decay=options.weight_decay,
        dropout_keep_prob=options.dropout_keep_prob,
        seed=seed,
        initializer=options.initializer,
      )
  if options.batch_norm_decay != -1:
    batch_norm.set_decay(model, options.batch_norm_decay)
  if is_synchronized:
    synchronized.synchronize(model)
  return model


def build_local(
  devices: devices_options.DeviceOptions,
  optimizer: optimizer_options.OptimizerOptions,
  codec: gradients.GradientCodec,
  node_pass: passes.Pass,
  specs: Sequence[policy.VariableSpec],
) -> local_steps.TrainerLocalSteps:
  """Builds the local steps that nodes take between two exchanges.

  The local steps apply the L2 terms of `node_pass`; `codec` encodes the
  exchange of the parameters that `specs` describes.
  """
  streams = devices.fragments > 1 or devices.overlap_steps > 0
  return local_steps.TrainerLocalSteps(
    devices.steps_per_exchange,
    optimizer.inner_rule(),
    optimizer.outer_learning_rate,
    node_pass.decay,
    fragments.members(codec) if streams else (),
    devices.overlap_steps,
    devices.mixing_factor,
    elementwise=frozenset(
      index
      for index, spec in enumerate(specs)
      if spec.is_logits or 'embedding' in spec.name
    ),
  )
