"""What CIFAR-10 is, for its converter and its reader."""

NAME = 'cifar10'
IMAGE_SIZE = 32  # pixels, height and width
CHANNELS = 3
CLASS_NAMES = (
  'airplane',
  'automobile',
  'bird',
  'cat',
  'deer',
  'dog',
  'frog',
  'horse',
  'ship',
  'truck',
)
SPLITS = ('train', 'test')
