"""Continues prompts with a Qwen checkpoint in Hugging Face's format.

  python examples/qwen/generate.py FOLDER --prompt "def main(" --tokens 64
  python examples/qwen/generate.py FOLDER --prompt "one" --prompt "another" --temperature 0.7 --top-k 20
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.decoder.generate import main

if __name__ == "__main__":
    main(__doc__)
