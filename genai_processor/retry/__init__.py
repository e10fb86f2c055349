# SPDX-License-Identifier: Apache-2.0
"""May it be tried again? Pure: records in, verdicts out, no I/O. Knows `spans` alone."""
