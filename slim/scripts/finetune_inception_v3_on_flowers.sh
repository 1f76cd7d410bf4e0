#!/usr/bin/env bash
# Fine-tunes TF-Slim's Inception v3 on the flower photos.
set -euo pipefail
# shellcheck source=slim/scripts/recipe.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/recipe.sh"

fine_tune inception_v3 InceptionV3/Logits,InceptionV3/AuxLogits \
  1000 500 0.0001 fixed "$@"
