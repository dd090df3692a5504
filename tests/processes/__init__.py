"""Tests that start Spark in processes of its own: clusters, Connect servers, kernels, drivers that are killed."""
