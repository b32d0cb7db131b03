"""NVFlare carries the conversation: everything here only translates."""
