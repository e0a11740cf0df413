"""megalith on several ranks: virtual ones, and processes that find each other by torchrun's environment."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

MEGALITH = os.path.abspath("tools/megalith/megalith")
QWEN = str(Path("models/configs/qwen3-moe-small.test.json").resolve())
RUN = [MEGALITH, "run", QWEN, "--sms", "2", "--rows", "2", "--context", "70,3"]


def free_port():
    """One with a free neighbour, which is where rank 0 listens."""
    while True:
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0))
            try:
                b.bind(("127.0.0.1", a.getsockname()[1] + 1))
                return a.getsockname()[1]
            except OSError:
                continue


def start(rank, ranks, port, *words):
    env = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen([*RUN, *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_processes_with_a_rank_each():
    port = free_port()
    workers = [start(rank, 2, port, "--tp", "2", "--repeat", "2") for rank in range(2)]
    done = [worker.communicate(timeout=280) for worker in workers]
    for worker, (_, err) in zip(workers, done):
        assert worker.returncode == 0, err[-2000:]
    report, silence = done[0][0], done[1][0]
    assert silence == ""  # rank 0 speaks for all
    assert "2 SMs for each of 2 ranks" in report and "FAILS" not in report
    assert re.findall(r"^  0 +(\d) +\w+ +[-\d] ", report, flags=re.M) == ["0", "1", "2", "3"]
    assert "2 more runs, launches overlapping, all with the same bits" in report


def sockets(port):
    """Of those at rank 0's port: the state as in /proc/net/tcp, "0A" listens, and how many bytes wait to be read."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            if local.endswith(f":{port + 1:04X}"):
                found.append((state, int(queues.split(":")[1], 16)))
    return found


def until(holds, what, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain: " + what
        time.sleep(0.02)


def test_a_rank_that_dies_while_they_meet():
    """Rank 0 is held where it listens, so that rank 1 has come and goes before they agree on anything."""
    port = free_port()
    first = start(0, 2, port, "--tp", "2")
    try:
        until(lambda: ("0A", 0) in sockets(port), "rank 0 listens")
        first.send_signal(signal.SIGSTOP)
        second = start(1, 2, port, "--tp", "2")
        # Its number, eight bytes, and what it says first.
        until(lambda: any(state == "01" and waiting > 8 for state, waiting in sockets(port)), "rank 1 has come")
        second.kill()
        second.communicate(timeout=20)
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == 4 and out == "", err
    assert re.search(r"error: rank 0: [^\n]*rank 1 is gone[^\n]*; its own message says why\n$", err), err


def test_a_rank_that_dies_while_they_run():
    """Rank 0's launch waits for words that nobody stores any more; it gives up and names them, and does not hang."""
    for _ in range(3):  # it may die between two launches; then they meet no more
        port = free_port()
        workers = [start(rank, 2, port, "--tp", "2", "--repeat", "1000") for rank in range(2)]
        try:
            assert workers[0].stdout.readline()  # the first run is over, of 1,001
            time.sleep(0.4)
            workers[1].kill()
            begin = time.monotonic()
            out, err = workers[0].communicate(timeout=90)
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate(timeout=20)
        assert workers[0].returncode == 4 and "all with the same bits" not in out, err
        assert time.monotonic() - begin < 60
        if "rank 1 is gone" not in err:
            break
    assert re.search(r"error: rank 0: [^\n]*poll of 'rank 0's (\w+)' \+ \d+ \(edge \d+ '\1_words', expected ", err), err[-2000:]
    assert err.count("\n") - err.count("\ncompile: ") <= 2  # and one line of all of it


def test_what_is_told():
    port = free_port()
    workers = [start(rank, 2, port) for rank in range(2)]  # a plan of one rank
    for worker in workers:
        _, err = worker.communicate(timeout=120)
        assert worker.returncode == 4 and "2 processes run a plan of 1 rank" in err, err
    env = os.environ | {"WORLD_SIZE": "2"}
    alone = subprocess.run([*RUN, "--tp", "2"], env=env, capture_output=True, text=True, timeout=120)
    assert alone.returncode == 4
    assert "environment variable RANK: expected a number from 0 to 1 but got nothing" in alone.stderr
    done = subprocess.run([*RUN, "--tp", "2", "--scope", "step"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--tp 2: expected with launches of a layer" in done.stderr
