"""MNIST, Fashion-MNIST and CIFAR-10."""
