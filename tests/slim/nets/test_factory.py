import keras
import pytest

from slim import errors
from slim.nets import factory
from slim.preprocessing import factory as preprocessing
from tests.slim.nets import outlines

_QUICK = ('alexnet', 'cifarnet', 'overfeat', 'slim_lenet', 'vgg')
_DEEP = ('_56', '_101', '_152', '_200', 'inception_v4', 'inception_resnet_v2')


def nets(quick=False):
  """Nets of images; slow those that take a second, `quick`: 1/4 of one."""

  def is_slow(name):
    if quick:
      return not any(word in name for word in _QUICK)
    return name.endswith(_DEEP)

  return [
    pytest.param(name, marks=pytest.mark.slow) if is_slow(name) else name
    for name, net in factory.NETS.items()
    if not net.takes_tokens
  ]


AUXILIARY = {
  'inception_v3',
  'inception_v4',
  'inception_resnet_v2',
  'slim_inception_v3',
}


@pytest.mark.parametrize('name', nets())
@pytest.mark.gate_every(3)
def test_every_net_builds_with_its_defaults(name):
  net = factory.NETS[name]
  model = outlines.usual(name)
  size = net.default_image_size
  assert model.input_shape == (None, size, size, net.default_channels)
  outputs = [model.output_shape]
  if name in AUXILIARY:
    outputs = model.output_shape
    assert len(outputs) == 2
  assert all(shape == (None, 7) for shape in outputs)
  assert (net.auxiliary_weight > 0) == (name in AUXILIARY)
  layers = {
    outlines.path(model, v).split('/')[0] for v in model.trainable_variables
  }
  assert 'logits' in layers
  assert ('aux_logits' in layers) == (name in AUXILIARY)


@pytest.mark.parametrize('name', nets(quick=True))
def test_every_net_takes_the_smallest_images_and_larger_ones(name):
  net = factory.NETS[name]
  for size in (net.least_image_size, net.default_image_size + 40):
    model = outlines.named(name, image_size=size)
    logits = factory.select_logits(model.outputs)
    assert tuple(logits.shape) == (None, 7)
    # No layer on the way sees nothing.
    shapes = [layer.output.shape for layer in model.layers]
    assert all(d is None or d > 0 for shape in shapes for d in shape)


@pytest.mark.parametrize(
  'name', [n for n, net in factory.NETS.items() if net.least_image_size > 1]
)
@pytest.mark.gate_every(3)
def test_images_too_small_for_the_net_are_refused(name):
  net = factory.NETS[name]
  size = net.least_image_size
  with pytest.raises(
    errors.DataError,
    match=f'{name}: expected images of at least {size} pixels, received '
    f'{size - 1}. Pass a larger image size; the net was designed for '
    f'{net.default_image_size}',
  ):
    factory.build(name, num_classes=7, image_size=size - 1)
  # Keras before 3.13 made some such nets, of layers that see nothing.
  with pytest.raises(ValueError):
    model = outlines.outline(net.build, num_classes=7, image_size=size - 1)
    shapes = [layer.output.shape for layer in model.layers]
    if any(d is not None and d <= 0 for shape in shapes for d in shape):
      raise ValueError(shapes)


@pytest.mark.parametrize('name', nets(quick=True))
def test_logits_are_float32_under_a_16_bit_policy(name):
  before = keras.config.dtype_policy()
  keras.config.set_dtype_policy('mixed_bfloat16')
  try:
    model = outlines.outline(factory.build, name=name, num_classes=7)
    assert {output.dtype for output in model.outputs} == {'float32'}
    assert {v.dtype for v in model.trainable_variables} == {'float32'}
  finally:
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize('name', nets(quick=True))
def test_every_kernel_is_drawn_with_a_different_seed(name):
  def seeds(model):
    return [
      getattr(layer, f'{kind}_initializer').seed
      for layer in model.layers
      for kind in ('kernel', 'depthwise', 'pointwise')
      if hasattr(layer, f'{kind}_initializer')
    ]

  first = seeds(outlines.usual(name))
  assert len(set(first)) == len(first)
  assert min(first) == 2
  other = seeds(outlines.named(name, seed=101))
  assert other == [seed + 100 for seed in first]


# Batch normalization's decay, epsilon, and whether it has a gamma.
INCEPTION = (0.9997, 0.001, False)
BATCH_NORM = {
  'alexnet': INCEPTION,
  'googlenet': INCEPTION,
  'inception_v1': INCEPTION,
  'inception_v2': INCEPTION,
  'inception_v3': INCEPTION,
  'inception_v4': INCEPTION,
  'inception_resnet_v2': INCEPTION,
  'slim_inception_v3': INCEPTION,
  'vgg_a': (0.999, 0.001, False),
  'vgg_16': (0.999, 0.001, False),
  **{
    name: (0.997, 1e-5, True)
    for name in factory.NETS
    if name.startswith('resnet')
  },
  **{
    name: (0.9, 1e-5, True)
    for name in factory.NETS
    if name.startswith(('small_resnet', 'cifar_resnet'))
  },
}


@pytest.mark.parametrize('name', nets())
def test_batch_normalization_has_the_net_s_constants(name):
  found = {
    (layer.momentum, layer.epsilon, layer.gamma is not None)
    for layer in outlines.usual(name).layers
    if isinstance(layer, keras.layers.BatchNormalization)
  }
  assert found == ({BATCH_NORM[name]} if name in BATCH_NORM else set())


# Of nets whose kernels do not all decay: those that do not.
UNDECAYED = {
  'cifar10_alexnet': {'conv1', 'conv2', 'logits'},
  'cifarnet': {'conv1', 'conv2', 'logits'},
  'inception_v2': {'conv2d_1a_7x7'},
}


@pytest.mark.parametrize('name', nets())
def test_kernels_decay_and_nothing_else_does(name):
  model = outlines.usual(name)
  kernels, others = set(), set()
  for variable in model.trainable_variables:
    layer, kind = outlines.path(model, variable).split('/')
    decays = variable.regularizer is not None
    if decays:
      assert float(variable.regularizer.l2) == 0.125
    if kind.endswith('kernel'):
      if not decays:
        kernels.add(layer)
    elif decays:
      others.add(kind)
  assert kernels == UNDECAYED.get(name, set())
  # Inception-ResNet's biases do.
  assert others == ({'bias'} if name == 'inception_resnet_v2' else set())


@pytest.mark.parametrize('name', nets(quick=True))
def test_weight_decay_zero_regularizes_nothing(name):
  model = outlines.named(name, weight_decay=0.0)
  assert all(v.regularizer is None for v in model.trainable_variables)


DROPOUTS = {
  **{name: 2 for name in ('alexnet', 'alexnet_v2', 'slim_alexnet_v2')},
  **{name: 2 for name in factory.NETS if 'vgg' in name},
  'overfeat': 2,
  'cifarnet': 1,
  'slim_lenet': 1,
  'googlenet': 1,
  **{name: 1 for name in factory.NETS if 'inception' in name},
}


@pytest.mark.parametrize('name', nets())
def test_dropout_keeps_the_requested_fraction_and_has_a_seed(name):
  model = outlines.usual(name)
  rates = [
    layer.rate
    for layer in model.layers
    if isinstance(layer, keras.layers.Dropout)
  ]
  assert rates == [0.25] * DROPOUTS.get(name, 0)
  seeds = [
    v.path
    for v in model.non_trainable_variables
    if v.path.endswith('seed_generator_state')
  ]
  assert len(set(seeds)) == len(rates)


def test_requested_sizes_override_the_net_s():
  model = factory.build('lenet', num_classes=3, image_size=20, channels=2)
  assert model.input_shape == (None, 20, 20, 2)
  assert model.output_shape == (None, 3)


def test_weight_decay_and_seed_reach_the_net():
  model = factory.build('lenet', num_classes=3, weight_decay=0, seed=5)
  assert model.losses == []
  assert model.get_layer('fc3').kernel_initializer.seed == 8


def test_weight_decay_defaults_to_the_net_s():
  model = factory.build('cifar10_alexnet', num_classes=3)
  decay = model.get_layer('fc3').kernel.regularizer.l2
  assert float(decay) == pytest.approx(0.004 / 2)


def test_unknown_net_is_refused_by_name():
  with pytest.raises(errors.UnknownNameError, match="did you mean 'lenet'"):
    factory.build('LeNet', num_classes=10)


def test_logits_are_the_first_of_two_outputs_and_the_only_one_of_one():
  assert factory.select_logits(['logits', 'auxiliary']) == 'logits'
  assert factory.select_logits('logits') == 'logits'


def test_names_of_tf_slim_select_tf_slim_s_nets():
  differ = ('lenet', 'vgg_a', 'vgg_16', 'alexnet_v2', 'inception_v3')
  for name in differ:
    assert factory.slim_name(name) == f'slim_{name}'
    assert name in factory.NETS
  same = [
    'cifarnet',
    'overfeat',
    'vgg_19',
    'inception_v1',
    'inception_v2',
    'inception_v4',
    'inception_resnet_v2',
    *(f'resnet_v{v}_{d}' for v in (1, 2) for d in (50, 101, 152, 200)),
  ]
  for name in same:
    assert factory.slim_name(name) == name
  assert set(factory.SLIM_NAMES) == {*differ, *same}


def test_a_net_that_tf_slim_lacks_is_refused():
  with pytest.raises(
    errors.UnknownNameError,
    match="Unknown net of TF-Slim: expected one of .*received 'googlenet'",
  ):
    factory.slim_name('googlenet')


def test_preprocessing_is_one_that_can_be_chosen():
  names = {net.preprocessing for net in factory.NETS.values()} - {''}
  assert names <= set(preprocessing.PREPROCESSINGS)
  assert factory.NETS['resnet_v1_50'].preprocessing == 'vgg'
  assert factory.NETS['resnet_v1_200'].preprocessing == ''
  assert factory.NETS['overfeat'].preprocessing == ''


def test_options_after_a_name_apply_to_its_net_alone():
  net = factory.find_net('resnet_v2_50:first_kernel=3,bias=true')
  assert net.build.keywords == {'first_kernel': 3, 'bias': True}
  assert net._replace(build=None) == factory.NETS['resnet_v2_50']._replace(
    build=None
  )
  assert factory.find_net('lenet') is factory.NETS['lenet']


@pytest.mark.parametrize(
  ('text', 'match'),
  [
    ('resnet_v1_50:first=3', 'first_kernel'),
    ('resnet_v1_50:first_kernel=x', 'a whole number for first_kernel'),
    ('resnet_v1_50:seed=3', 'bias, first_kernel, first_stride, last_pool'),
    ('lenet:bias=true', 'it has no options'),
    ('resnet_v1_51:bias=true', 'Unknown net'),
  ],
)
def test_options_that_a_net_lacks_are_refused(text, match):
  with pytest.raises(errors.DataError, match=match):
    factory.find_net(text)
