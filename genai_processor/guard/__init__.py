# SPDX-License-Identifier: Apache-2.0
"""Predicates for retry loops and retry libraries."""
