"""Datasets, partitions and minibatches."""
