# SPDX-License-Identifier: Apache-2.0
"""What nobody can know waits for a person: list it, look at the payments, settle it.

Run it: python examples/reconcile.py
"""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor import GenAISpanProcessor, MemoryLedger, Resolution
from genai_processor.errors import LedgerConflictError

ledger = MemoryLedger()
provider = TracerProvider()
exporting = SimpleSpanProcessor(InMemorySpanExporter())  # or what you export with
provider.add_span_processor(GenAISpanProcessor(exporting, ledger=ledger))

attributes = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "create_refund",
    "gen_ai.tool.call.id": "call_h2Fq9x",
}
try:
    with provider.get_tracer("my_agent").start_as_current_span("execute_tool create_refund", attributes=attributes):
        raise TimeoutError("no answer from the payment service")
except TimeoutError:
    pass

for entry in ledger.pending().entries:  # a hundred at a time; `pending(cursor=…)` goes on
    print(f"waits: {entry.tool} {entry.call_id}: {entry.state} ({entry.reason})")

    # Somebody has looked: the payment service knows of no such refund. `version` says which state of the entry they saw.
    note = "the payment service knows no refund of order 1042 (14:05)"
    settled = ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="payments desk", note=note, version=entry.version)
    print(f"settled: {settled.tool} {settled.call_id}: {settled.resolution}")

    # Somebody else had the same list open. Two people cannot both settle it.
    try:
        ledger.settle(entry.entry_id, Resolution.COMMITTED, who="support desk", note="looks paid", version=entry.version)
    except LedgerConflictError as error:
        print(f"refused: {error}")

print(f"waiting now: {len(ledger.pending().entries)}")
