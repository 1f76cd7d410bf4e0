"""What Fashion-MNIST is, for its converter and its reader."""

NAME = 'fashion_mnist'
IMAGE_SIZE = 28  # pixels, height and width
CHANNELS = 1
CLASS_NAMES = (
  'T-shirt/top',
  'Trouser',
  'Pullover',
  'Dress',
  'Coat',
  'Sandal',
  'Shirt',
  'Sneaker',
  'Bag',
  'Ankle boot',
)
SPLITS = ('train', 'test')
