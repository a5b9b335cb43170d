"""Trains a Qwen on text: a small new one, or a checkpoint in Hugging Face's format.

  python examples/qwen/train.py --save out/small                       # a small Qwen 3, on "tpu"
  python examples/qwen/train.py --family qwen2                         # of the architecture of 2 and 2.5
  python examples/qwen/train.py --model FOLDER --text FILE --lora 8    # adapters on a checkpoint
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.decoder.train import main
from examples.qwen.model import SMALL

if __name__ == "__main__":
    main(__doc__, SMALL)
