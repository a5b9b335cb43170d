"""Trains a Llama on text: a small new one, or a checkpoint in Hugging Face's format.

  python examples/llama/train.py --save out/small                       # from nothing, on "tpu"
  python examples/llama/train.py --model FOLDER --text FILE --lora 8    # adapters on a checkpoint
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.decoder.train import main
from examples.llama.model import SMALL

if __name__ == "__main__":
    main(__doc__, {"llama": SMALL})
