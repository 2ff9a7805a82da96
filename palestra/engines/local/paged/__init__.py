"""Paged execution for GPUs: look-ahead scheduling, a paged KV cache, and model steps replayed as CUDA graphs.

Read in this order: `scheduler` (which tokens run in a step), `block_manager` (which pages hold them), `runner` (device
state and CUDA graphs), `model` (the forward pass), then `kernels` and `sampling_kernels` (Triton). `reference` has
every kernel in plain torch, so the whole path also runs on a CPU, where the tests check it.
"""
