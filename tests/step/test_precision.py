import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.step import precision
from terngrad.training import assembly


def stepped(dtype, net):
  """(run, its result) of one float32 step of a batch of noise."""
  config = options_lib.build(
    configs.TrainConfig,
    net=net,
    dataset_name='mnist',
    image_size=16,
    batch_size=8,
    num_nodes=2,
    benchmark_mode=True,
    dtype=dtype,
    optimizer='gd',
    weight_decay=0.0,
  )
  config.validate()
  run = assembly.assemble(config)
  _, labels = next(run.batches(0))
  images = tf.random.stateless_normal([2, 4, 16, 16, 1], [1, 2])
  result = run.float_step.take(
    images,
    labels,
    tf.constant(0, tf.int64),
    tf.constant(0.01),
    tf.constant(0.5),
  )
  return run, result


@pytest.mark.parametrize(
  'net', ['lenet', pytest.param('cifar10_alexnet', marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_16_bit_layers_take_nearly_the_step_of_32_bits(net):
  reference, expected = stepped('float32', net)
  # Bits of the significand.
  for dtype, bits in (('bfloat16', 8), ('float16', 11)):
    run, result = stepped(dtype, net)
    assert bool(run.replicas[0].scaling) == (dtype == 'float16')
    np.testing.assert_allclose(
      result.entropy, expected.entropy, rtol=2.0 ** (3 - bits)
    )
    assert (result.entropy.numpy() != expected.entropy.numpy()).any()
    # Norms of gradients, whose elements went through a few roundings.
    np.testing.assert_allclose(result.probes, expected.probes, rtol=0.1)
    for variable in run.replicas[0].variables():
      assert variable.dtype == tf.float32
    moved = run.replicas[0].trainable[0].numpy()
    np.testing.assert_allclose(
      moved, reference.replicas[0].trainable[0].numpy(), atol=1e-3
    )


def test_layers_made_after_the_block_have_32_bits():
  with precision.layer_dtype('float16'):
    layer = keras.layers.Dense(1)
  assert (layer.compute_dtype, layer.variable_dtype) == ('float16', 'float32')
  assert keras.layers.Dense(1).compute_dtype == 'float32'
