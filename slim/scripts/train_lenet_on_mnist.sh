#!/usr/bin/env bash
# Trains LeNet on MNIST.
set -euo pipefail
# shellcheck source=slim/scripts/recipe.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

flags=(
  --preprocessing_name=lenet --max_number_of_steps=20000 --batch_size=50
  --learning_rate=0.01 --learning_rate_decay_type=fixed --weight_decay=0
)
from_scratch lenet mnist "$@"
