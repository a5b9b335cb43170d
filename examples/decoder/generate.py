"""Continues prompts with a checkpoint, and prints the tokens as they come."""

import argparse
import time

import torch

from examples.decoder import checkpoint
from examples.decoder.generation import Sampling, generate, stream


def parse(description: str, argv=None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="FOLDER", help="config.json, *.safetensors and tokenizer.json")
    parser.add_argument("--prompt", action="append", required=True, help="repeat it for a batch")
    parser.add_argument("--tokens", type=int, default=64, help="how many to add at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest token")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="of the weights; the checkpoint's by default")
    parser.add_argument("--compile", action="store_true", help="run the step through torch.compile")
    parser.add_argument("--compare", action="store_true", help="check the tokens against the CPU's; at temperature 0")
    return parser.parse_args(argv)


def main(description: str, argv=None) -> list[str]:
    """The continuation of each prompt."""
    args = parse(description, argv)
    torch.manual_seed(args.seed)
    model = checkpoint.load(args.model, args.device, args.dtype and getattr(torch, args.dtype))
    tokenizer = checkpoint.load_tokenizer(args.model)
    prompts = [tokenizer.encode(prompt).ids for prompt in args.prompt]
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    tokens, texts, started = [[] for _ in prompts], list(args.prompt), time.perf_counter()
    print(texts[0] if len(prompts) == 1 else "", end="", flush=True)
    for step in stream(model, prompts, args.tokens, sampling, args.compile):
        if not tokens[0]:
            first = time.perf_counter()
        for row, token in enumerate(step):
            if token is not None:
                tokens[row].append(token)
        if len(prompts) == 1:
            text = args.prompt[0] + tokenizer.decode(tokens[0])
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half of a character
                print(text[len(texts[0]):], end="", flush=True)
                texts[0] = text
    seconds = time.perf_counter() - first
    texts = [prompt + tokenizer.decode(row) for prompt, row in zip(args.prompt, tokens)]
    print("\n" if len(prompts) == 1 else "\n---\n".join(texts))
    count = max(len(row) for row in tokens)
    print(f"first token after {first - started:.2f} s; then {len(prompts) * (count - 1) / seconds:,.0f} tokens/s")
    if args.compare:
        expected = generate(checkpoint.load(args.model, "cpu", model.lm_head.weight.dtype), prompts, args.tokens)
        if tokens != expected:
            raise SystemExit(f"the CPU's tokens are others: {expected}, not {tokens}")
        print(f"the CPU's {sum(map(len, expected))} tokens are the same")
    return texts
