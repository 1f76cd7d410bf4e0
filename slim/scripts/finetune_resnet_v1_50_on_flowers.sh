#!/usr/bin/env bash
# Fine-tunes TF-Slim's ResNet v1 50 on the flower photos.
set -euo pipefail
# shellcheck source=slim/scripts/recipe.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

fine_tune resnet_v1_50 resnet_v1_50/logits 3000 1000 0.001 \
  exponential "$@"
