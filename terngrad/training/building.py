"""Builds the parts of a run that need some of its options alone."""

import keras
import tensorflow as tf

from slim.nets import factory as nets
from slim.nets.blocks import batch_norm
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


def net(
  chosen: model_options.TrainModel,
  image_size: int,
  is_synchronized: bool,
  context: execution.ExecutionContext,
) -> keras.Model:
  """The net, with its first values, on the first device.

  Args:
    chosen: which one.
    image_size: height and width of its input.
    is_synchronized: whether its normalisations see the examples of all nodes.
    context: where the run takes place.
  """
  # Keras takes an int32 seed; the codes take all 64 bits.
  seed = chosen.seed % 2**31
  with context.placement_scope():
    keras.utils.set_random_seed(seed)
    with (
      tf.device(context.exchange.devices[0]),
      precision.of_layers(chosen.dtype),
    ):
      model = nets.build(
        chosen.net,
        num_classes=context.data.num_classes,
        image_size=image_size,
        channels=context.data.channels,
        weight_decay=chosen.weight_decay,
        dropout_keep_prob=chosen.dropout_keep_prob,
        seed=seed,
        initializer=chosen.initializer,
      )
  if chosen.batch_norm_decay != -1:
    batch_norm.set_decay(model, chosen.batch_norm_decay)
  if is_synchronized:
    synchronized.synchronize(model)
  return model


def local(
  devices: devices_options.Devices,
  optimizer: optimizer_options.Optimizer,
  codec: gradients.GradientCodec,
  node_pass: passes.Pass,
) -> local_steps.LocalSteps:
  """What nodes do by themselves between two exchanges.

  Args:
    devices: how often they exchange, and in how many fragments.
    optimizer: of the local steps.
    codec: of what they exchange.
    node_pass: whose L2 terms act in the local steps.
  """
  streams = devices.fragments > 1 or devices.overlap_steps > 0
  return local_steps.LocalSteps(
    devices.steps_of_turn,
    optimizer.inner_rule(),
    optimizer.outer_learning_rate,
    node_pass.decay,
    fragments.members(codec) if streams else (),
    devices.overlap_steps,
    devices.mixing_factor,
  )
