"""Qwen 2.5 and 3: sizes of published models, and of a small one of each."""

from examples.decoder.model import Config, training_job

SMALL = {
    "qwen2": dict(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=32, rope_theta=1e6, tie_word_embeddings=True, qkv_bias=True),
    "qwen3": dict(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=32, rope_theta=1e6, tie_word_embeddings=True, qk_norm=True),
}
SIZES = {
    "2.5-0.5B": Config(151936, 896, 4864, 24, 14, 2, 64, 32768, 1e-6, 1e6, None, True, qkv_bias=True),
    "2.5-7B": Config(152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e-6, 1e6, None, False, qkv_bias=True),
    "3-0.6B": Config(151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e-6, 1e6, None, True, qk_norm=True),
    "3-8B": Config(151936, 4096, 12288, 36, 32, 8, 128, 40960, 1e-6, 1e6, None, False, qk_norm=True),
}


def job(size: str = "3-0.6B", batch: int = 1, context: int = 2048) -> dict:
    """A training step of a published size: `python -m torch_tpu aot examples.qwen.model`."""
    return training_job(SIZES[size], batch, context)
