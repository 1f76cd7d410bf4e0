#!/usr/bin/env bash
# Fine-tunes TF-Slim's Inception v1 on the flower photos.
set -euo pipefail
# shellcheck source=slim/scripts/recipe.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

fine_tune inception_v1 InceptionV1/Logits 3000 1000 0.001 \
  exponential "$@"
