"""Converters of ImageNet, flowers and folders of a user's photographs."""
