"""Continues prompts with a Llama checkpoint in Hugging Face's format.

  python examples/llama/generate.py FOLDER --prompt "def main(" --tokens 64
  python examples/llama/generate.py FOLDER --prompt "one" --prompt "another" --temperature 0.8 --top-p 0.9
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.decoder.generate import main

if __name__ == "__main__":
    main(__doc__)
