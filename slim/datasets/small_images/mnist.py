"""What MNIST is, for its converter and its reader."""

NAME = 'mnist'
IMAGE_SIZE = 28  # pixels, height and width
CHANNELS = 1
CLASS_NAMES = (
  'zero',
  'one',
  'two',
  'three',
  'four',
  'five',
  'six',
  'seven',
  'eight',
  'nine',
)
SPLITS = ('train', 'test')
