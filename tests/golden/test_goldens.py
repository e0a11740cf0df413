"""What the compiler makes now equals what was reviewed; if a change is meant: tests/golden/update.sh."""

import pytest

import goldens


@pytest.fixture(scope="module")
def now():
    return goldens.texts()


def test_the_same_files(now):
    assert sorted(goldens.present()) == sorted(now), "to mend: tests/golden/update.sh"


@pytest.mark.parametrize("name", sorted(goldens.present()))
def test_golden(now, name):
    old = goldens.present()[name]
    if now.get(name) != old:
        pytest.fail(f"if this is meant: tests/golden/update.sh\n{goldens.difference(name, old, now.get(name, ''))}", False)


def test_differences_are_told():
    text = goldens.difference("f", "a\nb\n", "a\nc\n")
    assert text.splitlines()[:2] == ["--- old f", "+++ new f"] and "-b" in text and "+c" in text
    long = goldens.difference("f", "", "x\n" * 1000)
    assert len(long.splitlines()) == goldens.MOST_LINES + 1
