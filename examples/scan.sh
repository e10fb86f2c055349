#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reads recorded traces (OTLP/JSON lines) and says of each failed tool call whether it may be tried again.
# Needs the command: pip install '.[cli]'
set -eu
cd "$(dirname "$0")/.."

# A refund that went through and then failed; and a model that did not know the tool's arguments.
genai-processor scan tests/data/recorded/autogen__openinference/s02_commit_then_502.jsonl \
                     tests/data/recorded/autogen__openinference/s04_schema_invalid.jsonl
