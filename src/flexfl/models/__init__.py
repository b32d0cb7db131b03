"""The paper's networks, and a flat parameter vector for any nn.Module."""
