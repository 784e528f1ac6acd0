"""Sparse samples of text files, compared with lines that Python splits."""

import numpy as np
import pytest

import unisono as uni
from unisono.samples import SparseReader, read_criteo, read_libsvm


@pytest.fixture
def path(tmp_path):
    """A file of 100 samples, each with up to five features."""
    random = np.random.default_rng(0)
    lines = []
    for label in range(100):
        features = zip(random.integers(0, 1000, label % 6), random.integers(-9, 9, label % 6), strict=True)
        lines.append(" ".join([str(label), *(f"{one}:{value}" for one, value in features)]))
    file = tmp_path / "samples.txt"
    file.write_text("\n".join(lines))
    return file


def naive(path):
    """Labels, and the features of each sample."""
    fields = [line.split() for line in path.read_text().splitlines()]
    return [
        (float(label), [(int(i), float(v)) for i, v in (one.split(":") for one in features)])
        for label, *features in fields
    ]


def samples(reader):
    """The samples of a reader in the same form."""
    found = []
    for batch in reader:
        assert [one.dtype.name for one in batch] == ["float32", "int64", "int64", "float32"]
        for at, label in enumerate(batch.labels):
            part = slice(batch.offsets[at], batch.offsets[at + 1])
            assert (batch.samples[part] == at).all()
            found.append((label, list(zip(batch.ids[part], batch.values[part], strict=True))))
    return found


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("parts", [1, 2, 3, 150])
def test_parts_have_every_sample_once(path, batch_size, parts):
    readers = [read_libsvm(path, batch_size, part=part, parts=parts) for part in range(parts)]
    assert [one for reader in readers for one in samples(reader)] == naive(path)
    assert all(reader.progress == 1 for reader in readers)


def test_ids_are_hashed_alike_in_every_part(path):
    plain, hashed = read_libsvm(path), read_libsvm(path, hash_bits=30)
    pairs = {}
    for one, other in zip(next(plain).ids, next(hashed).ids, strict=True):
        assert 0 <= other < 2**30
        assert pairs.setdefault(one, other) == other
    assert len(set(pairs.values())) == len(pairs)


def test_criteos_logs(tmp_path):
    path = tmp_path / "day"
    path.write_text(
        "\n".join("\t".join(["1", "3", *[""] * 12, "ff", *[""] * 24, last]) for last in ("a", ""))
    )
    (batch,) = read_criteo(path, hash_bits=16)
    assert batch.labels.tolist() == [1, 1] and batch.offsets.tolist() == [0, 3, 5]
    assert batch.ids[:2].tolist() == batch.ids[3:].tolist() and set(batch.values) == {1}


def test_an_empty_file_has_no_samples(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    reader = read_libsvm(path)
    assert isinstance(reader, SparseReader) and list(reader) == [] and reader.progress == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "from 1 on as batch_size, received 0"),
        ({"batch_size": 2.5}, "as batch_size, received 2.5"),
        ({"part": -1}, "from 0 on as part, received -1"),
        ({"part": 2, "parts": 2}, "part 2 of 2"),
        ({"hash_bits": 64}, "hash_bits from 1 to 63, received 64"),
        ({"hash_bits": True}, "as hash_bits, received True"),
    ],
)
def test_arguments_are_checked(path, arguments, words):
    with pytest.raises(uni.UsageError, match=words):
        read_libsvm(path, **arguments)


def test_a_mistake_is_named_with_its_line(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text("1 3:1\n0 4\n")
    with pytest.raises(uni.UsageError, match=r'id:value, received "4" \(.*clicks.txt:2\)'):
        list(read_libsvm(path))
    with pytest.raises(uni.IoError, match=r"missing\.txt"):
        read_libsvm(tmp_path / "missing.txt")
