"""Sources and converters of MNIST, Fashion-MNIST and CIFAR-10."""
