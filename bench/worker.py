"""python -m bench.worker PEER: answers requests, a line of JSON each.

{"prepare": row}     makes the row's work and gives the numbers to be compared
{"time": seconds}    times that work
{"call": [module, function, *arguments]}    what a function of bench returns; its first argument is the peer
"""

import gc
import importlib
import json
import os
import sys
import traceback

from bench import work


def _answer(peer, request, state):
    if "prepare" in request:
        state.clear()
        gc.collect()
        state["work"] = peer.work(request["prepare"])
        return work.prepare(state["work"], peer.counts)
    if "time" in request:
        return work.measure(state["work"], peer.counts, request["time"])
    module, function, *arguments = request["call"]
    return getattr(importlib.import_module(f"bench.{module}"), function)(peer, *arguments)


def main():
    """Answers until the requests end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    name = sys.argv[1]
    peer = importlib.import_module("bench.jax_work" if name == "jax" else "bench.torch_work").Peer(name)
    state = {}
    for line in sys.stdin:
        try:
            answer = _answer(peer, json.loads(line), state)
        except Exception as error:  # noqa: BLE001  the row says it, the run goes on
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {lines[0][:200]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
