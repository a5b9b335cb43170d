"""Trains a decoder on text: a small one from nothing, or a checkpoint, whole or by low-rank adapters."""

import functools
import math

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from examples.decoder import checkpoint, lora
from examples.decoder.generation import Sampling, generate
from examples.decoder.model import Config, Decoder
from examples.text import read_text, windows
from examples.training import Training, flags, train

END = "<|end|>"


def train_tokenizer(text: str, vocabulary: int) -> Tokenizer:
    """Byte pairs of the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


class LanguageModel(Training):
    """A decoder and AdamW over what is trained of it; `small` says the sizes of a new one."""

    unit = "tokens"

    def __init__(self, text: str, tokenizer: Tokenizer, small: dict, args, device: str):
        super().__init__(args, device)
        self.tokenizer, self.tokens = tokenizer, torch.tensor(tokenizer.encode(text).ids)
        if args.model:
            self.model = checkpoint.load(args.model, device, torch.float32)
        else:
            sizes = {"vocab_size": tokenizer.get_vocab_size(), "end_tokens": [tokenizer.token_to_id(END)]}
            self.model = Decoder(Config(**{**small, **sizes})).to(device)
        if args.lora:
            lora.add(self.model, args.lora, args.alpha, args.targets.split(","))
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    def batch(self):
        return windows(self.tokens, self.args.batch, self.args.context, self.generator)

    def units(self, ids, _):
        return ids.numel()

    def loss(self, ids, targets):
        return self.model.loss(ids, targets)

    def learning_rate(self):
        """Rises for 20 steps, then follows a cosine to a tenth."""
        progress = min(1.0, self.step / max(1, self.args.steps))
        return self.args.lr * min(1.0, (self.step + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * progress))

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)


def parse(description: str, families: list[str], argv=None):
    parser = flags(description, steps=300, batch=8, lr=2e-3)
    parser.add_argument("--family", choices=families, default=families[-1], help="of a new decoder")
    parser.add_argument("--model", metavar="FOLDER", help="train this checkpoint instead of a small new decoder")
    parser.add_argument("--text", help="a text file instead of the standard library's sources")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--lora", type=int, default=0, metavar="RANK", help="train adapters of this rank only")
    parser.add_argument("--alpha", type=float, default=16.0, help="adapters count alpha / RANK times")
    parser.add_argument("--targets", default="q_proj,v_proj", help="layers that get adapters")
    parser.add_argument("--save", metavar="FOLDER", help="write a checkpoint that transformers reads, adapters merged")
    parser.add_argument("--save-adapters", metavar="FOLDER", help="write the adapters as peft reads them")
    parser.add_argument("--prompt", default="def ", help="continue this at the end")
    parser.add_argument("--sample", type=int, default=40, help="tokens to generate at the end")
    return parser.parse_args(argv)


def main(description: str, small: dict[str, dict], argv=None) -> list[float]:
    """The losses of the steps. small: the sizes of a new decoder of each family, without those of its vocabulary."""
    args = parse(description, list(small), argv)
    text = read_text(args.text)
    tokenizer = checkpoint.load_tokenizer(args.model) if args.model else train_tokenizer(text[:500_000], 1024)
    run, losses = train(functools.partial(LanguageModel, text, tokenizer, small[args.family]), args)
    if args.save_adapters:
        lora.save(run.model, args.save_adapters)
    lora.merge(run.model)
    if args.save:
        checkpoint.save(run.model, args.save, tokenizer)
    if args.sample:
        prompt = tokenizer.encode(args.prompt).ids
        print(args.prompt + tokenizer.decode(generate(run.model, [prompt], args.sample, Sampling())[0]))
    return losses
