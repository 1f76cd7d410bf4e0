"""Checks whether a Keras optimizer can be wrapped."""

import keras
import tensorflow as tf

# The method that sums the gradients of all replicas.
REPLACED = '_all_reduce_sum_gradients'


def check(optimizer: keras.optimizers.Optimizer, wrapper: type) -> None:
  """Refuses an optimizer that `wrapper` cannot wrap.

  Raises:
    ValueError: the optimizer cannot be wrapped.
  """
  if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
    raise ValueError(
      'optimizer: expected one without a loss scale, received '
      'LossScaleOptimizer, whose gradients are still scaled. Wrap in the '
      'other order: LossScaleOptimizer(CompressedOptimizer(...)).'
    )
  if hasattr(optimizer, 'optimizers'):
    raise ValueError(
      'optimizer: expected a single one, received '
      f'{type(optimizer).__name__}, whose optimizers sum gradients separately. '
      'Wrap each of them in CompressedOptimizer.'
    )
  if not hasattr(type(optimizer), REPLACED):
    raise ValueError(
      'optimizer: expected one that sums the gradients of replicas by '
      f'{REPLACED}, as those of Keras 3 on TensorFlow do, received '
      f'{type(optimizer).__name__} of Keras {keras.__version__} on '
      f'{keras.backend.backend()}. Install a version of Keras that setup.py '
      'allows, and set KERAS_BACKEND=tensorflow.'
    )
  present = getattr(optimizer, REPLACED)
  if isinstance(getattr(present, '__self__', None), wrapper):
    raise ValueError(
      'optimizer: expected one that is not yet wrapped, received '
      f'{optimizer.name}, which is. Wrap an optimizer only once, and create a '
      'new one for another model.'
    )


def check_options(optimizer: keras.optimizers.Optimizer) -> None:
  """Refuses options that Keras does not support with several replicas.

  Raises:
    ValueError: an option needs a single replica, and there are several.
  """
  replicas = tf.distribute.get_strategy().num_replicas_in_sync
  for name in ('gradient_accumulation_steps', 'ema_overwrite_frequency'):
    value = getattr(optimizer, name)
    if value and replicas > 1:
      raise ValueError(
        f'{name}: expected None with {replicas} replicas, received {value}: '
        'Keras evaluates it inside each replica, in a conditional where no '
        'replica may wait for others. Leave it out, or train on one device.'
      )
