# SPDX-License-Identifier: Apache-2.0
"""How a PostgreSQL database holds a ledger, and the one function that asks and changes it.

The function knows none of the rules. It runs in READ COMMITTED, where each of its statements sees what was committed
before, so what it sees after it has its locks stays as it is until it is done.

Whoever asks says for which tables, and which transaction of theirs changed something last: a database in which that one is
still to come has gone back to an earlier state.
"""

from __future__ import annotations

from typing import Final

from genai_processor.ledger.questions import Kind
from genai_processor.ledger.rows import COLUMNS, column
from genai_processor.ledger.tables import IS_PENDING, MAY_EXPIRE

_ENTRIES: Final = "genai_ledger_entries"
_PLACES: Final = tuple(f"{kind.value}_place" for kind in Kind)
_ALL: Final = (*COLUMNS, "writer", *_PLACES)

_FOUND: Final = """
      WHEN '{kind}' THEN
        SELECT string_agg(entry_id || ':' || version, ' ' ORDER BY created_ns, entry_id), array_agg(entry_id)
          INTO found, found_ids
          FROM (SELECT entry_id, version, created_ns FROM genai_ledger_entries WHERE {kind}_place = (question->>1)::bigint
                ORDER BY created_ns DESC, entry_id DESC LIMIT nullif((question->>2)::bigint, 0)) AS newest;"""

_FUNCTION: Final = f"""
CREATE FUNCTION genai_ledger_ask(asked jsonb, changed json) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
  question jsonb;
  found text;
  found_ids text[];
  ids text[] := '{{}}';
  answers jsonb := '[]';
  held boolean := NOT (asked->'look')::boolean;
BEGIN
  IF to_regclass('genai_ledger_meta')::oid::text IS DISTINCT FROM asked->>'tables'
     OR txid_snapshot_xmax(txid_current_snapshot()) <= (asked->'changed_by')::bigint THEN
    RETURN '{{"lost": true}}';
  END IF;
  FOR question IN SELECT value FROM jsonb_array_elements(asked->'locks') LOOP
    IF (question->1)::boolean THEN
      PERFORM pg_advisory_xact_lock((question->>0)::bigint);
    ELSE
      PERFORM pg_advisory_xact_lock_shared((question->>0)::bigint);
    END IF;
  END LOOP;
  FOR question IN SELECT value FROM jsonb_array_elements(asked->'questions') LOOP
    found_ids := NULL;
    CASE question->>0
      WHEN 'entry' THEN
        SELECT entry_id || ':' || version, ARRAY[entry_id] INTO found, found_ids
          FROM genai_ledger_entries WHERE entry_id = question->>1;
      WHEN 'leased' THEN
        SELECT string_agg(entry_id || ':' || version, ' ' ORDER BY created_ns, entry_id), array_agg(entry_id)
          INTO found, found_ids
          FROM genai_ledger_entries
          WHERE leased_place = (question->>1)::bigint AND lease_expires_ns <= (question->>2)::bigint;
      WHEN 'expired' THEN
        found := EXISTS (SELECT FROM genai_ledger_expired
                         WHERE mark = ANY (ARRAY(SELECT jsonb_array_elements_text(question->1))))::text;
      WHEN 'unknown' THEN
        found := EXISTS (SELECT FROM genai_ledger_unknown
                         WHERE mark = ANY (ARRAY(SELECT jsonb_array_elements_text(question->1))))::text;
{"".join(_FOUND.format(kind=kind.value) for kind in Kind if kind is not Kind.LEASED)}
    END CASE;
    found := coalesce(found, '');
    answers := answers || to_jsonb(found);
    ids := ids || found_ids;
    held := held AND found = question->>3;
  END LOOP;
  IF NOT held THEN
    RETURN json_build_object(
      'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
      'answers', answers,
      'rows', (SELECT json_agg(entries) FROM genai_ledger_entries AS entries WHERE entry_id = ANY (ids)));
  END IF;
  IF changed->'writes' IS NOT NULL THEN
    INSERT INTO genai_ledger_entries ({", ".join(_ALL)})
      SELECT {", ".join(_ALL)} FROM json_populate_recordset(NULL::genai_ledger_entries, changed->'writes')
      ON CONFLICT (entry_id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _ALL if name != "entry_id")};
  END IF;
  IF changed->'drops' IS NOT NULL THEN
    DELETE FROM genai_ledger_entries WHERE entry_id = ANY (ARRAY(SELECT json_array_elements_text(changed->'drops')));
  END IF;
  IF changed->'expired' IS NOT NULL THEN
    INSERT INTO genai_ledger_expired SELECT json_array_elements_text(changed->'expired') ON CONFLICT DO NOTHING;
  END IF;
  IF changed->'unknown' IS NOT NULL THEN
    INSERT INTO genai_ledger_unknown SELECT * FROM json_populate_recordset(NULL::genai_ledger_unknown, changed->'unknown')
      ON CONFLICT DO NOTHING;
  END IF;
  RETURN json_build_object(
    'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    'changed_by', txid_current_if_assigned());
END
$body$
"""


def _defined(name: str) -> str:
    """A column; ids in the order of their bytes, as everywhere else."""
    return column(name).replace(" TEXT", ' TEXT COLLATE "C"') if name == "entry_id" else column(name)


_COLUMNS: Final = (
    *map(_defined, COLUMNS),
    "writer TEXT NOT NULL",
    *(f"{place} BIGINT" for place in _PLACES),
)

MIGRATIONS: Final = (
    (
        f"CREATE TABLE {_ENTRIES} ({', '.join(_COLUMNS)})",
        *(
            f"CREATE INDEX {_ENTRIES}_{place} ON {_ENTRIES} ({place}, created_ns, entry_id) WHERE {place} IS NOT NULL"
            for place in _PLACES
            if place != "leased_place"
        ),
        f"CREATE INDEX {_ENTRIES}_leased ON {_ENTRIES} (leased_place, lease_expires_ns) WHERE leased_place IS NOT NULL",
        f"CREATE INDEX {_ENTRIES}_lease ON {_ENTRIES} (lease_expires_ns) WHERE lease_expires_ns IS NOT NULL",
        f"CREATE INDEX {_ENTRIES}_state ON {_ENTRIES} (state)",
        f"CREATE INDEX {_ENTRIES}_age ON {_ENTRIES} (updated_ns) WHERE {MAY_EXPIRE}",
        f"CREATE INDEX {_ENTRIES}_queue ON {_ENTRIES} (created_ns, entry_id) WHERE {IS_PENDING}",
        f"CREATE INDEX {_ENTRIES}_queue_state ON {_ENTRIES} (state, created_ns, entry_id) WHERE {IS_PENDING}",
        # Texts of any length cannot stand in an index.
        f"CREATE INDEX {_ENTRIES}_queue_tool ON {_ENTRIES} (md5(tool), created_ns, entry_id) WHERE {IS_PENDING}",
        f"CREATE INDEX {_ENTRIES}_queue_scope ON {_ENTRIES} (md5(scope), created_ns, entry_id) WHERE {IS_PENDING}",
        "CREATE TABLE genai_ledger_expired (mark TEXT PRIMARY KEY)",
        "CREATE TABLE genai_ledger_unknown (mark TEXT PRIMARY KEY, scope TEXT NOT NULL, tool TEXT)",
        _FUNCTION,
    ),
)
"""What brings a database from one version of the schema to the next; the first from nothing to version 1."""

SCHEMA_VERSION: Final = len(MIGRATIONS)
"""Kept in the database, too."""
