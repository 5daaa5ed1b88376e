"""The model: Kimi K2.5's architecture (DeepSeek-V3 family) in Flax Linen.

May import `core` and `pallas_kernels`. Behaviour hangs on typed fields of `ModelConfig`, never on
a model's name. Axis letters: B batch, T tokens, D embed, H heads, K head size, E experts,
L layers, V vocabulary, R rank of the key-value latent.
"""
