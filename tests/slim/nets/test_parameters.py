"""Numbers of parameters, against what others publish."""

import pytest

from tests.slim.nets import outlines

# Trainable parameters, and where the number comes from.
OF_2017 = {  # the published description, 1001 classes
  'alexnet': 60_969_321,
  'alexnet_v2': 50_308_009,
  'vgg_a': 132_867_433,
  'vgg_16': 138_361_641,
  'googlenet': 6_618_649,
  'inception_v1': 6_618_649,
}
PUBLISHED = {  # torchvision's and keras.applications' counts, 1000 classes
  'slim_vgg_a': 132_863_336,
  'slim_vgg_16': 138_357_544,
  'vgg_19': 143_667_240,
  'resnet_v1_50': 25_557_032,
  'resnet_v1_101': 44_549_160,
  'resnet_v1_152': 60_192_808,
  'resnet_v1_200': 64_673_832,
  'resnet_v2_50': 25_613_800 - 45_440,
  'resnet_v2_101': 44_675_560 - 97_664,
  'resnet_v2_152': 60_380_648 - 143_744,
}
# Parameters and statistics without both classifiers, as TF-Slim's own tests
# count them; inception_resnet_v2 after keras.applications' 55,873,736.
WITHOUT_LOGITS = {
  'inception_v1': 5_607_184,
  'inception_v2': 10_173_112,
  'inception_v3': 21_802_784,
  'slim_inception_v3': 21_802_784,
  'inception_resnet_v2': 55_873_736 - 1_537_000,
}


@pytest.mark.parametrize(('name', 'expected'), OF_2017.items())
def test_has_the_parameters_of_2017(name, expected):
  model = outlines.named(name, num_classes=1001)
  assert outlines.parameters(model) == expected


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'expected'), PUBLISHED.items())
def test_has_the_parameters_that_others_count(name, expected):
  model = outlines.named(name, num_classes=1000)
  assert outlines.parameters(model) == expected


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'expected'), WITHOUT_LOGITS.items())
def test_has_the_parameters_that_others_count_before_the_logits(name, expected):
  model = outlines.named(name)
  ends = ('logits/', 'aux_')
  counted = [*model.trainable_variables, *outlines.statistics(model)]
  assert expected == outlines.size(
    v for v in counted if not v.path.startswith(ends)
  )


@pytest.mark.slow
def test_inception_v4_has_the_parameters_of_timm_s():
  # Which has a gamma a channel and no auxiliary classifier.
  model = outlines.named('inception_v4', num_classes=1000)
  count = outlines.parameters(model) - outlines.parameters(model, 'aux_')
  gammas = outlines.size(outlines.statistics(model)) // 2 - 128 - 768
  assert count + gammas == 42_679_816
