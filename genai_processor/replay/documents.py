# SPDX-License-Identifier: Apache-2.0
"""Edges that no call id makes: documents that were retrieved, ranked and read, and span links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genai_processor.replay.lookup import Found, Index, Op
from genai_processor.replay.parts import Part, PartKind
from genai_processor.replay.records import EdgeKind, Operation
from genai_processor.replay.tree import Tree, link_target


def documents_under_digests(ops: Sequence[Op]) -> Index[int]:
    """What retrievals and rerankings gave back, with its rank."""
    found: Index[int] = Index()
    for op in ops:
        if op.operation is Operation.RETRIEVAL or op.operation is Operation.RERANKING:
            for digest, at in op.draft.shown.documents:
                found.add(digest, op, at)
            for at, part in enumerate(op.outcome.parts):
                if not part.missing:
                    found.add(part.digest, op, at)
    return found


def read_document(op: Op, slot: int, part: Part, documents: Index[int]) -> None:
    """Find who retrieved what stands in a slot; a reranking has the last word."""
    entries = documents.nearest(part.digest, op)
    producers = {id(entry.op) for entry in entries}
    if len(producers) > 1:
        rankers = [entry for entry in entries if entry.op.operation is Operation.RERANKING]
        entries = rankers if len({id(entry.op) for entry in rankers}) == 1 else entries
        producers = {id(entry.op) for entry in entries}
    if len(producers) > 1:
        op.ambiguous += 1
    elif producers:
        entry = min(entries, key=lambda entry: entry.what)
        op.found.append(Found(EdgeKind.DOCUMENT, entry.op, slot, entry.what, True, False))


def rank_documents(op: Op, documents: Index[int]) -> None:
    """Find who retrieved what a reranking was given."""
    if op.inputs is None:
        return
    for slot, part in enumerate(op.inputs.parts):
        if part.kind is PartKind.DOCUMENT and not part.missing:
            entries = [e for e in documents.nearest(part.digest, op) if e.op.operation is Operation.RETRIEVAL]
            if len({id(entry.op) for entry in entries}) == 1:
                op.found.append(Found(EdgeKind.DOCUMENT, entries[0].op, slot, entries[0].what, True, False))
            elif entries:
                op.ambiguous += 1


def follow_links(op: Op, trees: Mapping[str, Tree], ops_of: Mapping[int, Op]) -> list[str]:
    """Add the edges that an operation's links say.

    Args:
        op: The operation.
        trees: The trees that a link may lead to, by trace id.
        ops_of: The operation of each node there, by the id of its draft.

    Returns:
        The keys of linked spans that are not in the record.
    """
    missing: list[str] = []
    for link in op.draft.shown.links:
        target = link_target(trees, link)
        if target is None:
            missing.append(f"{link.trace_id}:{link.span_id}")
            op.unobserved += 1
            continue
        producer = ops_of.get(id(target))
        if producer is None:
            op.unobserved += 1  # an agent's content, and which of its nodes made it is not said
        elif producer is not op and not any(found.producer is producer for found in op.found):
            op.found.append(Found(EdgeKind.LINK, producer, -1, -1, True))
    return missing
