#!/usr/bin/env bash
# Runs one parameter server of a run on ImageNet.
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh" \
  ps imagenet alexnet "$@"
