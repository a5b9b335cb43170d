"""Llama 3: sizes of published models, and of a small one."""

from examples.decoder.model import Config, training_job

ROPE_3_1 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}
SMALL = dict(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, head_dim=32, rope_theta=500000.0, rms_norm_eps=1e-5)
SIZES = {
    "3.2-1B": Config(128256, 2048, 8192, 16, 32, 8, 64, 131072, 1e-5, 500000.0, {**ROPE_3_1, "factor": 32.0}, True),
    "3.1-8B": Config(128256, 4096, 14336, 32, 32, 8, 128, 131072, 1e-5, 500000.0, ROPE_3_1),
    "3.1-70B": Config(128256, 8192, 28672, 80, 64, 8, 128, 131072, 1e-5, 500000.0, ROPE_3_1),
}


def job(size: str = "3.2-1B", batch: int = 1, context: int = 2048) -> dict:
    """A training step of a published size: `python -m torch_tpu aot examples.llama.model`."""
    return training_job(SIZES[size], batch, context)
