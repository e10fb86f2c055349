# SPDX-License-Identifier: Apache-2.0
"""AutoGen: native (`autogen-core`, never arguments) and OpenInference, whose span stands around the native one."""

from __future__ import annotations

import dataclasses

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, never_named
from genai_processor.spans.dialects.openinference import OPENINFERENCE

NATIVE = Dialect(name="AutoGen", scopes=("autogen-core", "autogen*"), runtime=runtimes.AUTOGEN)
OPENINFERENCE_AUTOGEN = dataclasses.replace(
    OPENINFERENCE,
    name="AutoGen (OpenInference)",
    scopes=("openinference.instrumentation.autogen*",),
    runtime=runtimes.AUTOGEN,
    unnamed=never_named,
)
DIALECTS = (NATIVE, OPENINFERENCE_AUTOGEN)
