"""The adapter to NVFlare, which transports the messages; it holds no mathematics."""
