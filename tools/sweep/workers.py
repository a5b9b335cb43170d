"""Operators run in forked workers, so a crash or a hang costs one operator."""
import collections
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import warnings

import torch

TASKS_PER_WORKER = 40  # compiled programs stay in a worker's memory


def serve(connection, run):
    """A worker: tasks, until the parent hangs up."""
    os.setsid()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # the crash report of an aborting worker is no one's result
    try:
        while True:
            connection.send(run(connection.recv()))
    except (EOFError, OSError):
        os._exit(0)


class Worker:
    """A forked process and the task it is busy with."""

    def __init__(self, run):
        self.connection, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=serve, args=(other, run), daemon=True)
        self.process.start()
        other.close()
        self.task, self.started, self.served = None, 0.0, 0

    def give(self, task):
        self.task, self.started, self.served = task, time.monotonic(), self.served + 1
        self.connection.send(task)

    def end(self):
        self.connection.close()
        self.process.kill()
        self.process.join()


def failure(kind, problem, seconds=0.0):
    return {"failing": 1, kind: 1, "problems": [problem], "seconds": seconds}


def result_of(worker):
    """(what the worker answered, whether it lives)."""
    try:
        return worker.connection.recv(), True
    except EOFError:
        worker.process.join()
        number = -(worker.process.exitcode or 0)
        cause = signal.Signals(number).name if number > 0 else f"exit {-number}"
        return failure("aborts", f"abort: {cause}"), False


def run_tasks(tasks, run, jobs, timeout_seconds):
    """Yields (task, run(task)) for every task, from `jobs` processes; a task that crashes or takes longer than the
    limit gives a result with "aborts" or "hangs"."""
    waiting = collections.deque(tasks)
    workers = []
    while waiting or workers:
        while waiting and len(workers) < jobs:
            workers.append(Worker(run))
            workers[-1].give(waiting.popleft())
        ready = multiprocessing.connection.wait([w.connection for w in workers], timeout=1)
        for worker in list(workers):
            late = time.monotonic() - worker.started > timeout_seconds
            if worker.connection not in ready and not late:
                continue
            if worker.connection in ready:
                result, alive = result_of(worker)
            else:
                result, alive = failure("hangs", f"no end after {timeout_seconds} s", timeout_seconds), False
            task = worker.task
            if alive and waiting and worker.served < TASKS_PER_WORKER:
                worker.give(waiting.popleft())
            else:
                worker.end()
                workers.remove(worker)
            yield task, result
