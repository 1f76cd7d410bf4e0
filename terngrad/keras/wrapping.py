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
      'LossScaleOptimizer, whose gradients are not yet divided by it. Put it '
      'around: LossScaleOptimizer(CompressedOptimizer(...)).'
    )
  if hasattr(optimizer, 'optimizers'):
    raise ValueError(
      f'optimizer: expected one, received {type(optimizer).__name__}, whose '
      'optimizers add gradients up by themselves. Put CompressedOptimizer '
      'around each of them.'
    )
  if not hasattr(type(optimizer), REPLACED):
    raise ValueError(
      'optimizer: expected one that adds up the gradients of replicas by '
      f'{REPLACED}, as those of Keras 3 on TensorFlow do, received '
      f'{type(optimizer).__name__} of Keras {keras.__version__} on '
      f'{keras.backend.backend()}. Install a version that setup.py names, and '
      'set KERAS_BACKEND=tensorflow.'
    )
  present = getattr(optimizer, REPLACED)
  if isinstance(getattr(present, '__self__', None), wrapper):
    raise ValueError(
      f'optimizer: expected one that is not yet compressed, received '
      f'{optimizer.name}, which is. Wrap it once, and make a new one for '
      'another model.'
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
        'Keras would take this decision where no replica may wait for others. '
        'Leave it out, or train on one device.'
      )
