# SPDX-License-Identifier: Apache-2.0
"""Files: formats told by content, compression, damage, limits, progress, memory."""

import gzip
import io
import subprocess
import sys
import textwrap

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from genai_processor.errors import TraceFileError
from genai_processor.spans.otlp import ReadError, read_spans


def span(number):
    return {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": f"span {number}"}


def document(*numbers):
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "lab"}, "spans": [span(n) for n in numbers]}]}]}


def line(*numbers):
    return orjson.dumps(document(*numbers)) + b"\n"


def message(*numbers):
    data = TracesData()
    spans = data.resource_spans.add().scope_spans.add().spans
    for number in numbers:
        spans.add(trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name=f"span {number}")
    return data.SerializeToString()


def prefixed(*contents):
    return b"".join(len(content).to_bytes(4, "big") + content for content in contents)


LINES = line(1) + line(2, 3) + line(4)
MESSAGES = prefixed(message(1), message(2, 3), message(4))


@pytest.fixture
def read(tmp_path):
    def read(content, **options):
        path = tmp_path / "recorded"
        path.write_bytes(content)
        errors = []
        spans = list(read_spans(path, on_error=errors.append, **options))
        assert all(error.file == str(path) for error in errors)
        return [int(s.span_id, 16) for s in spans], [(error.line, error.error) for error in errors]

    return read


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES.rstrip(),
        b"\n \r\n" + LINES.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + LINES,
        orjson.dumps(document(1, 2, 3, 4)),
        orjson.dumps(document(1, 2, 3, 4), option=orjson.OPT_INDENT_2),
        b"\n" + orjson.dumps(document(1, 2, 3, 4), option=orjson.OPT_INDENT_2),
        orjson.dumps([document(1, 2), document(3, 4)]),
        orjson.dumps([document(1, 2), document(3, 4)], option=orjson.OPT_INDENT_2),
        b"[\n" + line(1, 2).strip() + b",\n" + line(3, 4) + b"]\n",
        MESSAGES,
        prefixed(b"") + MESSAGES,
        message(1, 2, 3, 4),
        message(1) + message(2, 3, 4),
        b"".join(bytes((len(m),)) + m for m in (message(1), message(2), message(3), message(4))),
        prefixed(*map(zstandard.compress, (message(1, 2), message(3), message(4)))),
        prefixed(*map(zstandard.compress, (line(1, 2), line(3), line(4)))),
    ],
    ids=[
        "lines",
        "no-end-of-line",
        "blank-lines-crlf",
        "bom",
        "one-line",
        "indented",
        "indented-after-blank",
        "array",
        "array-indented",
        "array-of-lines",
        "length-prefixed",
        "empty-message-first",
        "TracesData",
        "two-TracesData",
        "varint-delimited",
        "collector-zstd-protobuf",
        "collector-zstd-json",
    ],
)
def test_formats_are_told_by_content(read, content, compress):
    assert read(compress(content)) == ([1, 2, 3, 4], [])


def test_many_gzip_members_and_zstd_frames(read):
    assert read(gzip.compress(line(1)) + gzip.compress(line(2)) + bytes(512)) == ([1, 2], [])
    assert read(zstandard.compress(line(1)) + zstandard.compress(line(2))) == ([1, 2], [])


def test_nothing(read):
    assert read(b"") == ([], [])
    assert read(b"\n\n") == ([], [])


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES)))
    assert len(list(read_spans("-", on_error=pytest.fail))) == 4
    assert not sys.stdin.buffer.closed


@pytest.mark.parametrize("name", ["absent", ".", "null\0byte"])
def test_a_file_that_cannot_be_opened(tmp_path, name):
    with pytest.raises(TraceFileError, match="cannot be opened"):
        read_spans(tmp_path / name, on_error=pytest.fail)


@pytest.mark.parametrize("damaged", [b"{", b'{"resourceSpans": [', b"[", b"junk", b"\xff\xfe\x00", b"[1,", line(9)[:-9]])
@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_damaged_line(read, damaged, place):
    lines = LINES.splitlines(keepends=True)
    lines.insert(place - 1, b"" + damaged + b"\n")
    spans, errors = read(b"".join(lines) if place > 1 or damaged[:2] != b"\xff\xfe" else b" " + b"".join(lines))
    assert spans == [1, 2, 3, 4]
    assert [line for line, _ in errors] == [place]
    assert "not JSON" in errors[0][1]


HALVES = (b"\\ud83d", b"\\uDE00", b"\\ud83dx", b"\\ude00\\ud83d")


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("place", range(3))
def test_half_a_surrogate_pair_costs_nothing_else(read, half, place):
    found = LINES.splitlines(keepends=True)
    found[place] = found[place].replace(b'"lab"', b'"lab' + half + b'"')
    assert read(b"".join(found)) == ([1, 2, 3, 4], [])
    assert read(found[place].replace(b'"resourceSpans"', b'\n"resourceSpans"')) == read(LINES.splitlines()[place])
    found[place] = found[place][:-9] + b"\n"
    spans, errors = read(b"".join(found))
    assert len(spans) < 4
    assert [line for line, _ in errors] == [place + 1]


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1" * 5_000, b"[" * 5_000])
def test_nor_does_it_make_json_of_what_is_none(read, value):
    damaged = line(1).replace(b'"lab"', b'"lab\\ud800", "more": ' + value)
    spans, errors = read(line(2) + damaged + line(3))
    assert spans == [2, 3]
    assert [number for number, _ in errors] == [2]


def test_damaged_lines_only(read):
    spans, errors = read(b'{"a\n{"b\n')
    assert spans == []
    assert [line for line, _ in errors] == [1, 2]


def test_a_damaged_document_is_one_error_at_its_place(read):
    text = orjson.dumps(document(1), option=orjson.OPT_INDENT_2).replace(b'"spanId":', b'"spanId"')
    spans, ((number, error),) = read(text)
    assert spans == []
    assert text.splitlines()[number - 1].strip().startswith(b'"spanId"')
    assert "not JSON" in error


def test_a_document_beyond_the_limit_is_one_error(read):
    spans, errors = read(orjson.dumps(document(*range(1, 99)), option=orjson.OPT_INDENT_2), max_line_bytes=1000)
    assert spans == []
    assert errors == [
        (1, "the JSON document is longer than 1000 bytes; write one object a line, or raise the limit"),
    ]


def test_lines_after_a_damaged_first_one_beyond_the_limit_of_a_document(read):
    many = [line(number) for number in range(1, 99)]
    spans, errors = read(b"{\n" + b"".join(many), max_line_bytes=400)
    assert spans == list(range(1, 99))
    assert [number for number, _ in errors] == [1]


@pytest.mark.parametrize("place", [1, 2])
def test_a_line_beyond_the_limit(read, place):
    long = line(*range(100, 200))
    lines = [line(1), line(2)]
    lines.insert(place - 1, long)
    spans, errors = read(b"".join(lines), max_line_bytes=len(long) - 1)
    assert spans == [1, 2]
    assert [number for number, _ in errors] == [place]
    assert "longer than" in errors[0][1]
    assert len(read(b"".join(lines), max_line_bytes=len(long))[0]) == 102


def test_utf16(read):
    spans, ((number, error),) = read(LINES.decode().encode("utf-16"))
    assert (spans, number) == ([], None)
    assert "convert it to UTF-8" in error


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_truncated_compression_keeps_what_was_read(read, compress):
    import random

    rng = random.Random(7)
    many = b"".join(line(rng.getrandbits(63) | 1) for _ in range(5000))
    whole = compress(many)
    spans, errors = read(whole[: len(whole) // 2])
    assert 1000 < len(spans) < 4000
    assert len(errors) == 1
    assert "truncated" in errors[0][1]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_garbage_after_compressed_data(read, compress):
    spans, errors = read(compress(LINES) + b"garbage")
    assert spans == [1, 2, 3, 4]
    assert len(errors) == 1
    assert "damaged" in errors[0][1]


def test_a_damaged_message(read):
    spans, errors = read(prefixed(message(1), b"\xff" * 9, message(2), b"", message(3)))
    assert spans == [1, 2, 3]
    assert [number for number, _ in errors] == [2]
    spans, errors = read(message(1) + b"\x0a\x02\xff\xff" + message(2))
    assert spans == [1, 2]
    assert [number for number, _ in errors] == [2]


def test_where_no_message_can_begin(read):
    spans, errors = read(message(1) + b"\x77" + message(2))
    assert spans == [1]
    assert errors == [
        (2, f"message 2 at byte {len(message(1))}: no length and no message there; the rest of the file cannot be read")
    ]


@pytest.mark.parametrize("cut", [1, 3, 10])
@pytest.mark.parametrize("content", [MESSAGES, message(1, 2, 3) + message(4)], ids=["prefixed", "TracesData"])
def test_a_truncated_message(read, content, cut):
    spans, errors = read(content[:-cut])
    assert spans == [1, 2, 3]
    assert len(errors) == 1
    assert f"ends {cut} bytes earlier" in errors[0][1]


def test_a_message_beyond_the_limit(read):
    spans, errors = read(prefixed(message(1), message(*range(100, 200)), message(2)), max_line_bytes=1000)
    assert spans == [1, 2]
    assert [number for number, _ in errors] == [2]
    bomb = zstandard.compress(bytes(10_000))
    spans, errors = read(prefixed(zstandard.compress(message(1)), bomb, bomb[:-5]), max_line_bytes=1000)
    assert spans == [1]
    assert [number for number, _ in errors] == [2, 3]


def test_wrong_ids_in_protobuf(read):
    data = TracesData()
    spans = data.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=b"short", span_id=bytes(7) + b"\1")
    spans.add(trace_id=bytes(16), span_id=bytes(7) + b"\1")
    spans.add(trace_id=b"\1" * 16, span_id=bytes(8))
    spans.add(trace_id=b"\1" * 16, span_id=b"\1" * 8, parent_span_id=b"\1")
    good = spans.add(trace_id=b"\1" * 16, span_id=bytes(7) + b"\1", parent_span_id=bytes(8))
    good.links.add(trace_id=b"?")
    spans, errors = read(prefixed(data.SerializeToString()))
    assert spans == [1]
    assert len(errors) == 5


def test_progress_counts_the_bytes_of_the_file(tmp_path):
    path = tmp_path / "recorded.gz"
    path.write_bytes(gzip.compress(LINES * 10_000))
    seen = []
    for _ in read_spans(path, on_error=pytest.fail, on_progress=lambda *progress: seen.append(progress)):
        pass
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)


def test_read_errors_are_frozen():
    with pytest.raises(AttributeError):
        ReadError("file", 1, "error").line = 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
def test_a_line_beyond_the_limit_is_never_held(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(line(1) + b'{"resourceSpans": "')
        for _ in range(80):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + line(2))
    script = """
        import resource, sys
        from genai_processor.spans.otlp import read_spans
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        errors = []
        print(sum(1 for _ in read_spans(sys.argv[1], max_line_bytes=1 << 20, on_error=errors.append)), len(errors))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(grown // (1 << 20 if sys.platform == "darwin" else 1 << 10))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    spans, errors, mebibytes = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert (spans, errors) == ("2", "1")
    assert int(mebibytes) < 24


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "arbitrary"
    for prefix in (b"", b"{", b"\n", gzip.compress(b""), zstandard.compress(b""), b"\x1f\x8b", MESSAGES, message(1)):
        path.write_bytes(prefix + content)
        list(read_spans(path, on_error=lambda error: None))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_undamaged_lines_are_all_read_whatever_befell_the_others(tmp_path_factory, data):
    lines = [bytearray(line(number)) for number in range(1, 6)]
    damaged = data.draw(st.sets(st.integers(0, 4), min_size=1))
    for index in damaged:
        text = lines[index]
        for _ in range(data.draw(st.integers(1, 3))):
            text[data.draw(st.integers(0, len(text) - 2))] = data.draw(st.integers(0, 255).filter(lambda b: b != 10))
        if data.draw(st.booleans()):
            del text[data.draw(st.integers(1, len(text) - 1)) : -1]
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(b"".join(lines))
    names = {s.name for s in read_spans(path, on_error=lambda error: None)}
    assert names >= {f"span {index + 1}" for index in range(5) if index not in damaged}


@pytest.mark.parametrize("zeros", [1_000, 50_000_000])
def test_a_file_of_zeros_is_no_trace_and_is_not_read_to_its_end(read, zeros):
    spans, errors = read(MESSAGES + bytes(zeros))
    assert spans == [1, 2, 3, 4]
    ((place, error),) = errors
    assert place == 103
    assert "zeros" in error


def test_some_empty_messages_are_none_to_speak_of(read):
    assert read(prefixed(b"", message(1), b"", b"", message(2))) == ([1, 2], [])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \t\n"])
def test_blank_lines_are_passed_over(read, end):
    assert read(end * 3 + line(1) + end * 1_000 + line(2)) == ([1, 2], [])


def test_a_text_that_is_no_trace_is_one_error(read):
    spans, errors = read(b"# Notes\n\n" + b"a line of prose\n" * 500 + b'{"as": "an example"}\n')
    assert spans == []
    (error,) = errors
    assert error[0] is None
    assert "neither OTLP/JSON nor OTLP protobuf" in error[1]


def test_a_trace_after_lines_of_prose_is_read_and_each_bad_line_said(read):
    spans, errors = read(b"starting\n" * 150 + line(1) + b"bad\n" + line(2))
    assert spans == [1, 2]
    assert [line for line, _ in errors] == [*range(1, 101), None, 152]
    assert errors[100][1].startswith("50 more lines")
