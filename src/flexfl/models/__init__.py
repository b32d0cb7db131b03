"""The paper's networks, and a flat view of any nn.Module."""
