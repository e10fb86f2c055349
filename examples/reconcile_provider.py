# SPDX-License-Identifier: Apache-2.0
"""Two refunds failed. One was paid and its answer was lost, one never arrived. The provider knows, so nobody has to look.

Run it: python examples/reconcile_provider.py
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from genai_processor import MemoryLedger
from genai_processor.ledger import Claim, Granted, Outcome
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.reconcile import Answer, Memory, Question, reconcile

# -- the provider: it keeps each refund under its idempotency key ------------------------------------------------------

paid: dict[str, dict[str, object]] = {}


class Payments(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        paid.setdefault(self.headers["Idempotency-Key"], order)
        self.answer(502)  # paid, and then the gateway in front of it fails

    def do_GET(self) -> None:
        key = self.path.removeprefix("/refunds/by-key/")
        self.answer(200 if key in paid else 404, {"refund": paid.get(key)})

    def answer(self, status: int, body: object = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Payments)
threading.Thread(target=server.serve_forever, daemon=True).start()
provider = f"http://127.0.0.1:{server.server_port}"

# -- the tool: it sends the key of the claim under which it runs -------------------------------------------------------

ledger = MemoryLedger()


def refund(order: str, call_id: str, url: str) -> None:
    granted = ledger.claim(Claim("conversation-1", "refund", call_id, digest=f"refund of {order}", turn=call_id))
    assert isinstance(granted, Granted)
    entry = ledger.start(granted.entry)
    headers = {"Idempotency-Key": idempotency_key_of(entry), "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/refunds", json.dumps({"order": order}).encode(), headers)
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except OSError as error:  # whichever it was: the money may have gone
        ledger.finish(entry, Outcome.FAILED, reason="execution_started")
        print(f"refund of order {order}: {error.__class__.__name__}: quarantined")


refund("1042", "call_h2Fq9x", provider)
refund("1043", "call_m8Tz4c", "http://127.0.0.1:9")  # nobody listens there

# -- the reconciler: it asks by the same key ---------------------------------------------------------------------------


def ask_about_refund(question: Question) -> Answer:
    try:
        with urllib.request.urlopen(f"{provider}/refunds/by-key/{question.key}", timeout=5):
            return Answer.COMMITTED
    except urllib.error.HTTPError as error:
        if error.code == 404 and error.headers.get_content_type() == "application/json":  # its own, not a gateway's
            return Answer.NOT_COMMITTED
        raise  # everything else, such as 500: it could not look, which says nothing


# `genai-processor reconcile --with MODULE:NAME` does what follows, and waits for minutes, not for a second.
memory = Memory()
for _ in range(2):
    time.sleep(1.2)
    report = reconcile(ledger, {"refund": ask_about_refund}, settle_after=1, memory=memory)
    for one in report.asked:
        entry = ledger.get(one.entry_id)
        assert entry is not None
        print(f"{entry.call_id}: {one.answer}: {one.outcome}")

print(f"waiting now: {len(ledger.pending().entries)}; paid: {len(paid)}")
server.shutdown()
