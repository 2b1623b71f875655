"""Records for Hypothesis."""

from hypothesis import strategies as st

from moldau.records.batch import Record

payloads = st.none() | st.binary(max_size=200) | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 500))
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, *, with_headers: bool = True) -> list[Record]:
    """Between one and eight records from offset 0 on."""
    count = draw(st.integers(1, 8))
    return [
        Record(offset, draw(timestamps), draw(payloads), draw(payloads), draw(headers) if with_headers else ())
        for offset in range(count)
    ]
