import pytest

from slim import errors
from slim.nets import factory


@pytest.mark.parametrize('name', factory.NETS)
def test_every_net_builds_with_its_defaults(name):
  net = factory.NETS[name]
  model = factory.build(name, num_classes=10)
  size = net.default_image_size
  assert model.input_shape == (None, size, size, net.default_channels)
  assert model.output_shape == (None, 10)


def test_given_sizes_win_over_the_net_s():
  model = factory.build('lenet', num_classes=3, image_size=20, channels=2)
  assert model.input_shape == (None, 20, 20, 2)
  assert model.output_shape == (None, 3)


def test_weight_decay_and_seed_arrive():
  model = factory.build('lenet', num_classes=3, weight_decay=0, seed=5)
  assert model.losses == []
  assert model.get_layer('fc3').kernel_initializer.seed == 8


def test_unknown_net_is_refused_by_name():
  with pytest.raises(errors.UnknownNameError, match="did you mean 'lenet'"):
    factory.build('LeNet', num_classes=10)


def test_weight_decay_is_the_net_s_own_when_none_is_given():
  model = factory.build('cifar10_alexnet', num_classes=3)
  own = model.get_layer('fc3').kernel.regularizer.l2
  assert float(own) == pytest.approx(0.004 / 2)


def test_logits_are_the_first_of_two_outputs_and_the_only_one_of_one():
  assert factory.logits_of(['logits', 'auxiliary']) == 'logits'
  assert factory.logits_of('logits') == 'logits'
