# SPDX-License-Identifier: Apache-2.0
"""Replay without guessing: what may be recomputed, what is taken from the record, and what cannot be replayed."""
