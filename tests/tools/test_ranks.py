"""megalith on several ranks: virtual ones, and processes that find each other by torchrun's environment."""

import os
import re
import socket
import subprocess
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
