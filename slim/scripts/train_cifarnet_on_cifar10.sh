#!/usr/bin/env bash
# Trains CifarNet on CIFAR-10.
set -euo pipefail
# shellcheck source=slim/scripts/recipe.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

flags=(
  --preprocessing_name=cifarnet --max_number_of_steps=100000 --batch_size=128
  --learning_rate=0.1 --learning_rate_decay_factor=0.1
  --num_epochs_per_decay=200 --weight_decay=0.004
)
from_scratch cifarnet cifar10 "$@"
