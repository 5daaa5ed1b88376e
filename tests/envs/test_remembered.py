"""An answer is worked out once, also by several threads at once, and kept only when it may be."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from composer2_jax.envs.remembered import Remembered


def test_threads_that_ask_together_share_one_computation() -> None:
    memory: Remembered[int] = Remembered()
    calls: list[int] = []

    def work_out() -> tuple[int, bool]:
        calls.append(1)
        time.sleep(0.05)
        return 7, True

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(memory.get, "key", work_out) for _ in range(4)]
    assert sorted(answer.result() for answer in answers) == [(7, False), *[(7, True)] * 3]
    assert len(calls) == 1


def test_other_keys_do_not_wait() -> None:
    memory: Remembered[int] = Remembered()
    held = threading.Event()

    def slow() -> tuple[int, bool]:
        held.wait(5)
        return 1, True

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memory.get, "a", slow)
        assert pool.submit(memory.get, "b", lambda: (2, True)).result(timeout=2) == (2, False)
        assert not first.done()
        held.set()


def test_an_answer_that_may_not_be_kept_is_worked_out_again() -> None:
    memory: Remembered[int] = Remembered()
    assert memory.get("key", lambda: (1, False)) == (1, False)
    assert memory.get("key", lambda: (2, True)) == (2, False)
    assert memory.get("key", lambda: (3, True)) == (2, True)


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    memory: Remembered[int] = Remembered(size=2)
    for key in ("a", "b", "a", "c"):
        memory.get(key, lambda: (1, True))
    assert memory.get("a", lambda: (2, True)) == (1, True)
    assert memory.get("b", lambda: (2, True)) == (2, False)
