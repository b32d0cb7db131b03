"""The paper's networks, and a flat view of any nn.Module."""

NETWORKS = ("mlp", "cnn")
"""The functions of `models.networks` that a spec may name; here, since a spec is read without torch."""
