"""ImageNet, flowers and folders of own photographs."""
