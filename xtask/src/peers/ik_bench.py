"""Times ik_llama.cpp through the C functions that its Python package binds.

    ik_bench.py MODEL THREADS PROMPT GENERATE DEPTH SEQUENCES ATTENTION

Prints one JSON object in the terms of llama-bench. Timed is what llama-bench times: calls of `llama_decode` for a
prompt of PROMPT tokens, or for GENERATE tokens of each of SEQUENCES sequences, behind DEPTH tokens that are computed
before the clock starts. ATTENTION is 1 for flash attention, and 0 without.
"""

import ctypes
import json
import sys
import time

from ik_llama_cpp import _ctypes_api as api

# The size of a physical batch, llama-bench's own default.
BATCH = 512
# Tokens that warm the threads and the pages up.
WARM_UP = 16


def log_to_stderr():
    """The library reports to stdout's terminal otherwise, where the result goes."""
    callback_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    callback = callback_type(lambda level, text, data: sys.stderr.buffer.write(text or b""))
    api._lib.llama_log_set.argtypes = [callback_type, ctypes.c_void_p]
    api._lib.llama_log_set.restype = None
    api._lib.llama_log_set(callback, None)
    return callback


class Bench:
    def __init__(self, path, threads, context, sequences, attention):
        params = api.llama_model_default_params()
        self.model = api.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"ik_llama.cpp can't load {path}")
        params = api.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn = attention
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("ik_llama.cpp can't make a context")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(BATCH, 0, 1)

    def decode(self, rows):
        """One call with `rows` of (position, sequence); logits of the last row of each sequence."""
        batch = self.batch
        batch.n_tokens = len(rows)
        last = {sequence: index for index, (_, sequence) in enumerate(rows)}
        for index, (position, sequence) in enumerate(rows):
            batch.token[index] = (position * 2654435761 + sequence * 40503) % self.vocab
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = last[sequence] == index
        code = api.llama_decode(self.context, batch)
        if code != 0:
            sys.exit(f"llama_decode gave {code}")
        api.llama_get_logits_ith(self.context, len(rows) - 1)

    def prompt(self, start, count, sequence=0):
        for first in range(start, start + count, BATCH):
            self.decode([(p, sequence) for p in range(first, min(first + BATCH, start + count))])

    def generate(self, start, count, sequences):
        for position in range(start, start + count):
            self.decode([(position, sequence) for sequence in range(sequences)])

    def clear(self):
        api.llama_kv_cache_clear(self.context)


def main():
    path = sys.argv[1]
    threads, n_prompt, n_gen, depth, sequences, attention = map(int, sys.argv[2:8])
    callback = log_to_stderr()
    api.llama_backend_init()
    context = (depth + n_prompt + n_gen + WARM_UP) * sequences
    bench = Bench(path, threads, context, sequences, bool(attention))
    if n_prompt:
        bench.prompt(0, min(n_prompt, BATCH))
    else:
        bench.generate(0, min(n_gen, WARM_UP), sequences)
    bench.clear()
    for sequence in range(sequences):
        bench.prompt(0, depth, sequence)
    start = time.perf_counter_ns()
    if n_prompt:
        bench.prompt(depth, n_prompt)
    else:
        bench.generate(depth, n_gen, sequences)
    took = time.perf_counter_ns() - start
    tokens = n_prompt + n_gen * sequences
    print(json.dumps({"samples_ts": [tokens / took * 1e9]}))
    del callback


main()
