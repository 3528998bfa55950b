#!/usr/bin/env bash
# Write requirements/ci-*.txt: every package that the checks run with, pinned, for all their Pythons.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() {
    uv pip compile --universal --quiet --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
        --no-emit-package dlb-worker --no-emit-package dlb-graph --no-emit-package dlb-core --no-emit-package dlb-measure --python-version "$1" "${@:3}" \
        --output-file "requirements/ci-$2.txt" \
        - <<<"dlb-worker @ file://$PWD/worker"$'\n'"dlb-graph @ file://$PWD/graph"$'\n'"dlb-core @ file://$PWD/core"$'\n'"dlb-measure @ file://$PWD/plugins/dlb-measure"
    # A framework would pin it for everyone, and on Linux torch brings CUDA libraries.
    if grep -qiE '^(torch|tensorflow|mxnet|chainer|nvidia-[a-z-]+)==' "requirements/ci-$2.txt"; then
        echo "requirements/ci-$2.txt has a framework" >&2
        exit 1
    fi
}
lock 3.10 core requirements/core.in graph/pyproject.toml core/pyproject.toml plugins/dlb-port/pyproject.toml plugins/dlb-measure/pyproject.toml plugins/dlb-report/pyproject.toml --extra imagenet --extra parquet --extra pandas
lock 3.10 browser requirements/browser.in graph/pyproject.toml core/pyproject.toml plugins/dlb-port/pyproject.toml plugins/dlb-measure/pyproject.toml plugins/dlb-report/pyproject.toml --extra plots
lock 3.10 executors requirements/executors.in graph/pyproject.toml core/pyproject.toml
lock 3.10 track requirements/track.in graph/pyproject.toml core/pyproject.toml plugins/dlb-measure/pyproject.toml plugins/dlb-track/pyproject.toml --extra tensorboard --extra mlflow --extra wandb --extra model-card
lock 3.11 lint requirements/lint.in
lock 3.11 types requirements/types.in graph/pyproject.toml core/pyproject.toml plugins/dlb-port/pyproject.toml plugins/dlb-measure/pyproject.toml plugins/dlb-report/pyproject.toml
lock 3.11 docs requirements/docs.in graph/pyproject.toml core/pyproject.toml plugins/dlb-port/pyproject.toml plugins/dlb-measure/pyproject.toml plugins/dlb-report/pyproject.toml
