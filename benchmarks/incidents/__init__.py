# SPDX-License-Identifier: Apache-2.0
"""Incidents of real agent frameworks: what takes effect bare, with a guard that observes, and with one that enforces."""
